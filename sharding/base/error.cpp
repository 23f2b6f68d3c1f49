// Composes messages and throws Errors.
#include "sharding/base/error.h"

#include "sharding/base/caller.h"
#include "sharding/base/text.h"

namespace tessera {

namespace {

// Returns whether the message already names the path: "layers.1: ..." or "layers.1.kernel: ...".
bool names(std::string_view message, std::string_view path) {
  for (size_t at = message.find(path); at != std::string_view::npos; at = message.find(path, at + 1)) {
    const std::string_view next = message.substr(at + path.size(), 2);
    const bool begins = at == 0 || message[at - 1] == ' ';
    if (begins && (next == ": " || (next.size() == 2 && next[0] == '.' && next[1] != ' '))) return true;
  }
  return false;
}

}  // namespace

void fail(ErrorKind kind, std::string_view verb, std::string_view message) { fail_lines(kind, verb, message, {}); }

void fail_lines(ErrorKind kind, std::string_view verb, std::string_view message, std::span<const std::string> lines) {
  const auto& module = detail::current_module_path();
  const bool adds_path = module && !names(message, *module);
  std::string text;
  text.reserve(verb.size() + message.size() + 3);
  text.append("[").append(verb).append("] ");
  if (adds_path) text.append(*module).append(": ");
  text.append(message);
  text = detail::escaped(text, "\t");  // it may contain names from files
  for (const std::string& line : lines) text.append("\n  ").append(detail::escaped(line, "\t"));
  throw Error(kind, text);
}

void detail::fail_moved(std::string_view verb, std::string_view what) {
  fail(ErrorKind::invalid_argument, verb, "this " + std::string(what) + " was moved into another; use that one.");
}

}  // namespace tessera
