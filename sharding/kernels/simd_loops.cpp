// Compiled with -O3 and -ffp-contract=off.
#include "sharding/kernels/simd_loops.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace tessera::detail {

void add_floats(std::span<const float* const> terms, float* sum, int64_t n) {
  constexpr int64_t length = 256;  // at a time, which stay in the first cache
  std::array<float, length> total;
  int64_t begin = 0;
  for (; n - begin >= length; begin += length) {
    std::copy_n(terms[0] + begin, length, total.begin());
    for (const float* term : terms.subspan(1))
      for (int64_t i = 0; i < length; ++i) total[i] += term[begin + i];
    std::copy_n(total.begin(), length, sum + begin);
  }
  for (; begin < n; ++begin) {
    sum[begin] = terms[0][begin];
    for (const float* term : terms.subspan(1)) sum[begin] += term[begin];
  }
}

double sum_of_squares(const float* x, int64_t n) {
  constexpr int64_t parts = 8;  // none waits for the one before
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

void scale_floats(float* x, float factor, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

bool are_nonzero(const float* x, int64_t stride, int64_t n) {
  bool all = true;
  for (int64_t i = 0; i < n; ++i) all &= std::abs(x[i * stride]) > 0;
  return all;
}

}  // namespace tessera::detail
