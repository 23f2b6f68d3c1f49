// The loops of the generators: batches of counters to bits, and bits to numbers, as vector instructions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "sharding/random/key.h"

namespace tessera {

// One block of threefry2x32: the two output words for the counter (high, low).
Key threefry2x32(const Key& key, uint32_t high, uint32_t low);

}  // namespace tessera

namespace tessera::detail {

constexpr int64_t batch_size = 512;

// The global indices of a batch of elements, as the words that threefry takes.
struct Batch {
  alignas(64) uint32_t high[batch_size];
  alignas(64) uint32_t low[batch_size];
  int64_t size = 0;

  void append(uint64_t first, int64_t count);
};

// The bits of every element of a batch.
void draw(Key key, const Batch& batch, uint32_t* out);
void draw(Key key, const Batch& batch, uint64_t* out);

template <class T>
using BitsFor = std::conditional_t<std::is_same_v<T, float>, uint32_t, uint64_t>;

// XLA computes low + unit * width with one rounding. The same bits come from a plain product and sum where the product
// is exact, and (for float) from double arithmetic where the sum is exact there; both are faster than std::fma,
// which without the instruction is a call.
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
  // Multiples of 2^lowest below 2^highest are doubles if these are 53 bits apart.
  bool sum_fits_double() const {
    const int lowest_product = std::ilogb(width) - 23 - 23;
    const int lowest = low == 0 ? lowest_product : std::min(lowest_product, std::ilogb(low) - 23);
    const int highest = std::ilogb(std::max({std::abs(low), std::abs(high), width})) + 2;
    return highest - lowest <= 53;
  }
};

// Turns random bits into uniform numbers of the interval.
void scale(Interval<float> to, const uint32_t* bits, int64_t n, float* out);
void scale(Interval<double> to, const uint64_t* bits, int64_t n, double* out);

template <class T>
struct Clip {
  T low, high;
};

// Turn uniform numbers, in place, into normal ones between the bounds; into exponential and Gumbel-distributed ones.
void to_normal(Clip<float> clip, int64_t n, float* x);
void to_normal(Clip<double> clip, int64_t n, double* x);
void to_exponential(int64_t n, float* x);
void to_exponential(int64_t n, double* x);
void to_gumbel(int64_t n, float* x);
void to_gumbel(int64_t n, double* x);

}  // namespace tessera::detail
