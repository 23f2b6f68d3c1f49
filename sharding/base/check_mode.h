// TESSERA_CHECK=1: whether the library checks its own assumptions while it runs.
#pragma once

#include "sharding/base/scoped_value.h"

namespace tessera::detail {

// What environment_flag says of TESSERA_CHECK, or the innermost CheckScope. While it is false, reading it is all that
// checking costs.
extern bool checks;

// For tests: turns the checks on or off until it is destroyed.
struct CheckScope : ScopedValue<bool> {
  explicit CheckScope(bool on = true) : ScopedValue(checks, on) {}
};

}  // namespace tessera::detail
