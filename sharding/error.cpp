// The one way in which the library throws.
#include "sharding/error.h"

namespace tessera {

void fail(ErrorKind kind, std::string_view verb, std::string_view message) {
  std::string text;
  text.reserve(verb.size() + message.size() + 3);
  text.append("[").append(verb).append("] ").append(message);
  throw Error(kind, text);
}

}  // namespace tessera
