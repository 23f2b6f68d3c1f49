// Vectorizable loops over floats, with the same bits on every processor.
#pragma once

#include <cstdint>

namespace tessera::detail {

// Returns the sum of x[i]^2, in float64.
double sum_of_squares(const float* x, int64_t n);
// Returns whether x[0], x[stride], ... are all nonzero numbers (not NaN).
bool are_nonzero(const float* x, int64_t stride, int64_t n);

}  // namespace tessera::detail
