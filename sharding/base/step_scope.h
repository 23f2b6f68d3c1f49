// StepScope: the number of the training step that computes now, for errors that say when something happened.
#pragma once

#include <cstdint>
#include <optional>

#include "sharding/base/scoped_value.h"

namespace tessera {

namespace detail {
// Unset outside any scope.
inline std::optional<int64_t>& current_step() {
  thread_local std::optional<int64_t> step;
  return step;
}
}  // namespace detail

// While it lives, what DetectNonFinite and TESSERA_CHECK_FINITE=1 find is found "in step 12":
//   for (int64_t step = 1; step <= steps; ++step) {
//     const StepScope current(step);
//     ...
// Scopes belong to their thread; of nested ones the innermost counts.
class StepScope {
 public:
  explicit StepScope(int64_t step) : step_(detail::current_step(), step) {}

 private:
  detail::ScopedValue<std::optional<int64_t>> step_;
};

}  // namespace tessera
