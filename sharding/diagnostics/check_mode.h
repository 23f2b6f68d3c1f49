// TESSERA_CHECK=1: whether the library checks its own assumptions while it runs.
#pragma once

#include "sharding/diagnostics/scoped_value.h"

namespace tessera::detail {

// True if the environment variable TESSERA_CHECK is set and not 0, or as the innermost CheckScope says. While it is false, reading
// it is all that checking costs.
extern bool checks;

// For tests: turns the checks on or off until it is destroyed.
struct CheckScope : ScopedValue<bool> {
  explicit CheckScope(bool on = true) : ScopedValue(checks, on) {}
};

}  // namespace tessera::detail
