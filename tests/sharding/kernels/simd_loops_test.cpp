// Sums, squares and looks at floats, of lengths on both sides of what a loop takes at once.
#include "sharding/kernels/simd_loops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace tessera::detail {
namespace {

constexpr int64_t lengths[] = {0, 1, 7, 8, 9, 255, 256, 257, 1000};

std::vector<float> numbers(int64_t n, float first) {
  std::vector<float> x;
  for (int64_t i = 0; i < n; ++i) x.push_back(first + 0.1f * static_cast<float>(i));
  return x;
}

TEST(FloatLoops, AddFromTheLeft) {
  for (const int64_t n : lengths) {
    const std::vector<float> a = numbers(n, 1), b = numbers(n, 1e7f), c = numbers(n, -1e7f);
    std::vector<float> sum(n, -1);
    const float* const terms[] = {a.data(), b.data(), c.data()};
    add_floats(terms, sum.data(), n);
    for (int64_t i = 0; i < n; ++i) EXPECT_EQ(sum[i], a[i] + b[i] + c[i]) << n << ' ' << i;
  }
}

TEST(FloatLoops, SquaresAreAddedInFloat64) {
  for (const int64_t n : lengths) {
    const std::vector<float> x = numbers(n, 4097);
    double expected = 0;
    for (const float value : x) expected += double{value} * value;
    EXPECT_NEAR(sum_of_squares(x.data(), n), expected, 1e-12 * expected) << n;
  }
}

TEST(FloatLoops, ScaleEveryElement) {
  for (const int64_t n : lengths) {
    std::vector<float> x = numbers(n, 1);
    scale_floats(x.data(), 3, n);
    for (int64_t i = 0; i < n; ++i) EXPECT_EQ(x[i], numbers(n, 1)[i] * 3) << n << ' ' << i;
  }
}

TEST(FloatLoops, NothingButNumbersButZero) {
  for (const float other : {0.0f, -0.0f, std::nanf("")})
    for (const int64_t stride : {1, 3})
      for (int64_t at = 0; at < 9 * stride; ++at) {
        std::vector<float> x = numbers(9 * stride, 1);
        EXPECT_TRUE(are_nonzero(x.data(), stride, 9));
        x[at] = other;
        EXPECT_EQ(are_nonzero(x.data(), stride, 9), at % stride != 0) << other << ' ' << stride << ' ' << at;
      }
  const float infinity = -std::numeric_limits<float>::infinity();
  EXPECT_TRUE(are_nonzero(&infinity, 1, 1));
}

}  // namespace
}  // namespace tessera::detail
