// The one way in which the library throws.
#include "sharding/error.h"

#include "sharding/module_path.h"

namespace tessera {

void fail(ErrorKind kind, std::string_view verb, std::string_view message) {
  const auto& module = detail::current_module_path();
  const bool adds_path = module && message.find(*module) == std::string_view::npos;
  std::string text;
  text.reserve(verb.size() + message.size() + 3);
  text.append("[").append(verb).append("] ");
  if (adds_path) text.append(*module).append(": ");
  text.append(message);
  throw Error(kind, text);
}

}  // namespace tessera
