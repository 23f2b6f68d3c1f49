// environment_flag: whether a variable of the environment turns something on.
#pragma once

#include <cstdlib>
#include <string_view>

namespace tessera::detail {

// Set, and neither empty nor "0".
inline bool environment_flag(const char* name) {
  const char* text = std::getenv(name);
  return text && *text && std::string_view(text) != "0";
}

}  // namespace tessera::detail
