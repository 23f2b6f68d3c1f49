// Counter-based random numbers for one block of a global array: the generators behind random arrays.
#pragma once

#include <cstdint>

#include "sharding/placement/named_sharding.h"
#include "sharding/random/key.h"

// Each function here fills `out` with the elements of `block`, in row-major order of the block. `block` gives [start,
// stop) of each dimension of a global array of shape `global`, and `out` has space for the product of stop - start. A
// scalar (both empty) is one element.
//
// An element depends only on the key and on its row-major index in the global array. So a value is the same bit for bit
// whether one block or many are drawn, and on every processor: no element depends on the math library or on contraction
// into fused multiply-adds (except erf of the two bounds of a truncated normal).
//
// T: uint32_t or uint64_t for bits; uint8_t, int32_t or int64_t for integers; float or double for the rest.
// Errors (invalid_argument): a block that is not inside the global shape.
// Source: threefry2x32 with 20 rounds, Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), on the
// 64-bit index as (high word, low word), which is JAX's layout (jax_threefry_partitionable). Tests compare with JAX.
namespace tessera {

// Fills with jax.random.bits(key, global, uint32 or uint64). JAX's 8 and 16 bit numbers are the low bits of the 32 bit
// ones.
template <class T>
void random_bits(const Key& key, const Shape& global, const IndexRanges& block, T* out);

// Fills with uniform numbers in [low, high), equal to jax.random.uniform(key, global, dtype, low, high) as XLA compiles
// it for CPUs: u * (high - low) + low is rounded once, as a fused multiply-add. The bounds are rounded to the element
// type first. u has 23 (float) or 52 (double) random bits. JAX makes doubles only with x64 enabled.
template <class T>
void random_uniform(const Key& key, const Shape& global, const IndexRanges& block, double low, double high, T* out);

// Fills with normal numbers of mean 0 and standard deviation 1: jax.random.normal to 1e-6 (float). sqrt(2) erfinv(u)
// for u uniform in (-1, 1).
// Source of erfinv: Giles, "Approximating the erfinv function" (GPU Computing Gems, 2012), as in XLA.
template <class T>
void random_normal(const Key& key, const Shape& global, const IndexRanges& block, T* out);

// Fills with standard normal numbers conditioned on lower < x < upper, not rescaled: jax.random.truncated_normal(key,
// lower, upper, global) to 1e-5 for bounds within 4 of zero. Infinite bounds are allowed. Throws invalid_argument
// unless lower < upper.
template <class T>
void random_truncated_normal(const Key& key, const Shape& global, const IndexRanges& block, double lower, double upper,
                             T* out);

// Fills with exponential numbers of rate 1: jax.random.exponential to 1e-6 (float), -log(1 - u) for u uniform in [0,
// 1).
template <class T>
void random_exponential(const Key& key, const Shape& global, const IndexRanges& block, T* out);

// Fills with Gumbel numbers of location 0 and scale 1: jax.random.gumbel (mode "low", its default) to 1e-6 (float),
// -log(-log(u)) for u uniform in (0, 1).
template <class T>
void random_gumbel(const Key& key, const Shape& global, const IndexRanges& block, T* out);

// Fills with first + r, where 0 <= r < span, or r is any number of the type's width if span is 0: jax.random.randint
// bit for bit. Two draws of that width (32 bits for narrower types) make one number of twice the width, which is taken
// modulo span.
template <class T>
void random_integers(const Key& key, const Shape& global, const IndexRanges& block, int64_t first, uint64_t span,
                     T* out);

}  // namespace tessera
