// Environment variables: flags, numbers, and TESSERA_CHECK.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <optional>

#include "sharding/base/fail.h"
#include "sharding/base/scoped_value.h"
#include "sharding/base/text.h"

namespace tessera::detail {

// Returns whether the variable is on (1, true, on, yes) or off (0, false, off, no, none, empty, unset).
// Error (invalid_argument): another value.
bool environment_flag(const char* name);
// Like environment_flag, but returns std::nullopt for another value.
std::optional<bool> known_flag(const char* name);

// Returns the number of `what` ("threads") that the variable gives; nullopt if it is unset or empty.
// Error (invalid_argument): not a number from 1.
inline std::optional<int64_t> environment_number(const char* name, const char* what) {
  const char* text = std::getenv(name);
  if (!text || !*text) return std::nullopt;
  const std::optional number = parse_number<int64_t>(text);
  if (!number || *number < 1)
    fail(ErrorKind::invalid_argument, name,
         "\"{}\" given, expected a number of {} from 1. Set it to one, or leave it unset.", text, what);
  return number;
}

// The value of TESSERA_CHECK, or of the innermost CheckScope. If it is false, checking costs one read of this variable.
extern bool checks;

// For tests: turns the checks on or off until it is destroyed.
struct CheckScope : ScopedValue<bool> {
  explicit CheckScope(bool on = true) : ScopedValue(checks, on) {}
};

}  // namespace tessera::detail
