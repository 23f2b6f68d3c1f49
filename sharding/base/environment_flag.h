// environment_flag: whether a variable of the environment turns something on.
#pragma once

#include <optional>

namespace tessera::detail {

// Returns whether the variable is on (1, true, on, yes) or off (0, false, off, no, none, empty, unset).
// Error (invalid_argument): another value.
bool environment_flag(const char* name);
// Like environment_flag, but returns std::nullopt for another value.
std::optional<bool> known_flag(const char* name);

}  // namespace tessera::detail
