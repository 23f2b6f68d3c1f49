// Patterns matched name by name.
#include "sharding/placement/path_pattern.h"

#include <algorithm>

namespace tessera {

namespace {

// Takes the first of the dotted names off; the last one leaves nothing.
std::string_view take_name(std::string_view& path) {
  const size_t end = std::min(path.find('.'), path.size());
  const std::string_view name = path.substr(0, end);
  path = path.substr(std::min(end + 1, path.size()));
  return name;
}

bool name_matches(std::string_view name, std::string_view pattern) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] != '*')
    return !name.empty() && name[0] == pattern[0] && name_matches(name.substr(1), pattern.substr(1));
  return name_matches(name, pattern.substr(1)) || (!name.empty() && name_matches(name.substr(1), pattern));
}

}  // namespace

bool path_matches(std::string_view path, std::string_view pattern) {
  if (pattern.empty()) return path.empty();
  std::string_view rest = pattern;
  const std::string_view first = take_name(rest);
  if (first == "**") {
    if (path_matches(path, rest)) return true;
    if (path.empty()) return false;
    take_name(path);
    return path_matches(path, pattern);
  }
  return !path.empty() && name_matches(take_name(path), first) && path_matches(path, rest);
}

}  // namespace tessera
