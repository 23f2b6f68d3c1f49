// environment_flag: whether a variable of the environment turns something on.
#pragma once

#include <cstdlib>
#include <string_view>

namespace tessera::detail {

// Set, and neither empty nor one of "0", "false", "off" and "no".
inline bool environment_flag(const char* name) {
  const char* const set = std::getenv(name);
  const std::string_view text = set ? set : "";
  return !text.empty() && text != "0" && text != "false" && text != "off" && text != "no";
}

}  // namespace tessera::detail
