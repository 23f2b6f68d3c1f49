// One element of the generators: maps its counter to its number, with inline arithmetic for processors and GPUs.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "sharding/random/erf_inv.h"

// No call here may be contracted into fused multiply-adds (-ffp-contract=off, --fmad=false), so that every processor
// gives the same bits.
namespace tessera::detail {

// --- threefry2x32 ---

template <int A, int B, int C, int D>
TESSERA_ALWAYS_INLINE void four_rounds(uint32_t& x0, uint32_t& x1) {
  x0 += x1, x1 = std::rotl(x1, A) ^ x0;
  x0 += x1, x1 = std::rotl(x1, B) ^ x0;
  x0 += x1, x1 = std::rotl(x1, C) ^ x0;
  x0 += x1, x1 = std::rotl(x1, D) ^ x0;
}

TESSERA_ALWAYS_INLINE void threefry(uint32_t k0, uint32_t k1, uint32_t& x0, uint32_t& x1) {
  const uint32_t k2 = k0 ^ k1 ^ 0x1BD11BDAu;
  x0 += k0, x1 += k1;
  four_rounds<13, 15, 26, 6>(x0, x1);
  x0 += k1, x1 += k2 + 1;
  four_rounds<17, 29, 16, 24>(x0, x1);
  x0 += k2, x1 += k0 + 2;
  four_rounds<13, 15, 26, 6>(x0, x1);
  x0 += k0, x1 += k1 + 3;
  four_rounds<17, 29, 16, 24>(x0, x1);
  x0 += k1, x1 += k2 + 4;
  four_rounds<13, 15, 26, 6>(x0, x1);
  x0 += k2, x1 += k0 + 5;
}

// --- uniform ---

// Returns a number in [0, 1) from the upper bits.
TESSERA_ALWAYS_INLINE float unit(uint32_t bits) { return std::bit_cast<float>(bits >> 9 | 0x3F800000u) - 1.0f; }
TESSERA_ALWAYS_INLINE double unit(uint64_t bits) {
  return std::bit_cast<double>(bits >> 12 | 0x3FF0000000000000u) - 1.0;
}

// Return low + unit * width, at least `low`. The Rounding of the interval selects the function (threefry_simd.h).
template <class T>
TESSERA_ALWAYS_INLINE T with_exact_product(T unit, T low, T width) {
  const T x = unit * width + low;
  return x > low ? x : low;
}
template <class T>
TESSERA_ALWAYS_INLINE T with_exact_sum(T unit, double low, double width) {
  const T x = static_cast<T>(unit * width + low), least = static_cast<T>(low);
  return x > least ? x : least;
}
template <class T>
TESSERA_ALWAYS_INLINE T with_one_rounding(T unit, T low, T width) {
  const T x = std::fma(unit, width, low);
  return x > low ? x : low;
}

// --- transformations of uniform numbers ---

template <class T>
TESSERA_ALWAYS_INLINE T normal_of(T uniform, T least, T most) {
  constexpr T root_two = static_cast<T>(1.41421356237309504880);
  const T value = root_two * erf_inv(uniform);
  const T above = value < least ? least : value;
  return above > most ? most : above;
}
template <class T>
TESSERA_ALWAYS_INLINE T exponential_of(T uniform) {
  return -log_of(T(1) - uniform);
}
template <class T>
TESSERA_ALWAYS_INLINE T gumbel_of(T uniform) {
  return -log_of(-log_of(uniform));
}

// --- one element of a block ---

enum class Law : uint8_t { bits, uniform, normal, exponential, gumbel, bernoulli };

// A block of float32 numbers of a law (int64 for bits, bool for bernoulli), in the form that a GPU kernel takes.
struct BlockDraw {
  static constexpr int max_dims = 8;

  Law law = Law::bits;
  uint8_t rounding = 0;  // a Rounding
  uint32_t key[2] = {};
  float low = 0, width = 1;                  // interval of the uniform numbers
  float least = -INFINITY, most = INFINITY;  // bounds of normal numbers
  float chance = 1;                          // the probability of bernoulli
  int64_t start = 0, size = 0;               // the first element's global index; the number of elements
  int dims = 0;
  int64_t extents[max_dims] = {}, strides[max_dims] = {};  // the block's extents, and the global array's strides
};

TESSERA_ALWAYS_INLINE uint32_t bits_at(const BlockDraw& draw, int64_t i) {
  int64_t index = draw.start;
  for (int d = draw.dims; d-- > 0; i /= draw.extents[d]) index += i % draw.extents[d] * draw.strides[d];
  uint32_t x0 = static_cast<uint32_t>(static_cast<uint64_t>(index) >> 32), x1 = static_cast<uint32_t>(index);
  threefry(draw.key[0], draw.key[1], x0, x1);
  return x0 ^ x1;
}

// Returns the number of element i, for all laws except bits. For bernoulli, returns the number to compare with
// `chance`.
TESSERA_ALWAYS_INLINE float number_at(const BlockDraw& draw, int64_t i) {
  const float u = unit(bits_at(draw, i));
  const float x = draw.rounding == 0   ? with_exact_product(u, draw.low, draw.width)
                  : draw.rounding == 1 ? with_exact_sum(u, draw.low, draw.width)
                                       : with_one_rounding(u, draw.low, draw.width);
  if (draw.law == Law::normal) return normal_of(x, draw.least, draw.most);
  if (draw.law == Law::exponential) return exponential_of(x);
  return draw.law == Law::gumbel ? gumbel_of(x) : x;
}

}  // namespace tessera::detail
