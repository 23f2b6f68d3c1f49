// Squares and zeros of floats, for lengths below and above the width of a loop.
#include "sharding/kernels/simd_loops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace tessera::detail {
namespace {

constexpr int64_t lengths[] = {0, 1, 7, 8, 9, 255, 1000};

std::vector<float> numbers(int64_t n, float first) {
  std::vector<float> x;
  for (int64_t i = 0; i < n; ++i) x.push_back(first + 0.1f * static_cast<float>(i));
  return x;
}

TEST(FloatLoops, SquaresAreAddedInFloat64) {
  for (const int64_t n : lengths) {
    const std::vector<float> x = numbers(n, 4097);
    double expected = 0;
    for (const float value : x) expected += double{value} * value;
    EXPECT_NEAR(sum_of_squares(x.data(), n), expected, 1e-12 * expected) << n;
  }
}

TEST(FloatLoops, AllNumbersButZero) {
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
