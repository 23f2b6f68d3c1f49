// Environment variables: flags, numbers, and TESSERA_CHECK.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <optional>

#include "sharding/base/fail.h"
#include "sharding/base/text.h"
#include "sharding/base/thread_state.h"

namespace tessera::detail {

// Returns whether the variable is on (1, true, on, yes) or off (0, false, off, no, none, empty, unset). Throws
// invalid_argument for another value.
bool environment_flag(const char* name);
// Returns whether the variable is on or off, as environment_flag does; std::nullopt for another value.
std::optional<bool> known_flag(const char* name);

// Returns the variable's value, the number of `what` ("threads"); std::nullopt if it is unset or empty. Throws
// invalid_argument if it is not an integer of at least 1.
inline std::optional<int64_t> environment_number(const char* name, const char* what) {
  const char* text = std::getenv(name);
  if (!text || !*text) return std::nullopt;
  const std::optional number = parse_number<int64_t>(text);
  if (!number || *number < 1)
    fail(ErrorKind::invalid_argument, name,
         "\"{}\" given, expected a number of {} from 1. Set it to one, or leave it unset.", text, what);
  return number;
}

// The value of TESSERA_CHECK, or of the innermost CheckScope. Disabled checks cost one read of this variable.
extern bool checks;

// Turns the checks on or off in its scope, for tests.
struct CheckScope : ScopedValue<bool> {
  explicit CheckScope(bool on = true) : ScopedValue(checks, on) {}
};

}  // namespace tessera::detail
