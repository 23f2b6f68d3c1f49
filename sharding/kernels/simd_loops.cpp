// Vectorized loops, compiled with -O3, and with -ffp-contract=off for the same bits on every processor.
#include "sharding/kernels/simd_loops.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace tessera::detail {

double sum_of_squares(const float* x, int64_t n) {
  constexpr int64_t parts = 8;  // independent sums
  std::array<double, parts> sums{};
  int64_t i = 0;
  for (; n - i >= parts; i += parts) {
    std::array<double, parts> wide;
    std::copy_n(x + i, parts, wide.begin());
    for (int64_t k = 0; k < parts; ++k) sums[k] += wide[k] * wide[k];
  }
  double sum = 0;
  for (const double part : sums) sum += part;
  for (; i < n; ++i) sum += double{x[i]} * x[i];
  return sum;
}

bool are_nonzero(const float* x, int64_t stride, int64_t n) {
  bool all = true;
  for (int64_t i = 0; i < n; ++i) all &= std::abs(x[i * stride]) > 0;
  return all;
}

}  // namespace tessera::detail
