// environment_flag: whether a variable of the environment turns something on.
#pragma once

#include <optional>

namespace tessera::detail {

// Error (bad_argument): a value that means neither on (1, true, on, yes) nor off (0, false, off, no, none). A variable
// that is unset or empty is off.
bool environment_flag(const char* name);
// The same without an Error: std::nullopt.
std::optional<bool> known_flag(const char* name);

}  // namespace tessera::detail
