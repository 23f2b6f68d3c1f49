// The vectorized loops of the generators: from batches of counters to bits, and from bits to numbers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "sharding/random/key.h"

namespace tessera {

// Returns the two output words of threefry2x32 for the counter (high, low).
Key threefry2x32(const Key& key, uint32_t high, uint32_t low);

}  // namespace tessera

namespace tessera::detail {

constexpr int64_t batch_size = 512;

// The global indices of a batch of elements, as the two words that threefry takes.
struct Batch {
  alignas(64) uint32_t high[batch_size];
  alignas(64) uint32_t low[batch_size];
  int64_t size = 0;

  void append(uint64_t first, int64_t count);
};

// Compute the bits of each element of a batch.
void draw(Key key, const Batch& batch, uint32_t* out);
void draw(Key key, const Batch& batch, uint64_t* out);

template <class T>
using BitsFor = std::conditional_t<std::is_same_v<T, float>, uint32_t, uint64_t>;

// The arithmetic of low + unit * width. XLA computes it with one rounding. A plain product and sum gives the same bits
// if the product is exact. For float, double arithmetic does so if its sum is exact. Both are faster than std::fma,
// which is a function call on processors without the instruction.
enum class Rounding { product_exact, sum_exact_in_double, fused };

template <class T>
struct Interval {
  T low, high, width;
  Rounding rounding;

  Interval(double from, double to)
      : low(static_cast<T>(from)), high(static_cast<T>(to)), width(high - low), rounding(choose()) {}

 private:
  Rounding choose() const {
    int exponent = 0;
    if (!(width >= std::numeric_limits<T>::min() * T(0x1p60))) return Rounding::fused;
    if (std::frexp(width, &exponent) == T(0.5)) return Rounding::product_exact;
    if (std::is_same_v<T, float> && sum_fits_double()) return Rounding::sum_exact_in_double;
    return Rounding::fused;
  }
  // Multiples of 2^lowest below 2^highest fit a double if highest - lowest is at most 53.
  bool sum_fits_double() const {
    const int lowest_product = std::ilogb(width) - 23 - 23;
    const int lowest = low == 0 ? lowest_product : std::min(lowest_product, std::ilogb(low) - 23);
    const int highest = std::ilogb(std::max({std::abs(low), std::abs(high), width})) + 2;
    return highest - lowest <= 53;
  }
};

// Convert random bits to uniform numbers of the interval.
void scale(Interval<float> to, const uint32_t* bits, int64_t n, float* out);
void scale(Interval<double> to, const uint64_t* bits, int64_t n, double* out);

template <class T>
struct Clip {
  T low, high;
};

// Convert uniform numbers, in place, to normal ones between the bounds, to exponential ones, and to Gumbel-distributed
// ones.
void to_normal(Clip<float> clip, int64_t n, float* x);
void to_normal(Clip<double> clip, int64_t n, double* x);
void to_exponential(int64_t n, float* x);
void to_exponential(int64_t n, double* x);
void to_gumbel(int64_t n, float* x);
void to_gumbel(int64_t n, double* x);

}  // namespace tessera::detail
