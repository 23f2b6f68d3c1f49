// Generators of recipes: jax.random's distributions, drawn block by block.
#pragma once

#include <cstdint>
#include <memory>

#include "sharding/array/recipe.h"
#include "sharding/random/key.h"

namespace tessera::detail {

using GeneratorPtr = std::shared_ptr<const Generator>;

// The generators of the functions of these names in random.h, which check the arguments; threefry.h makes the numbers.
// Floating numbers are drawn in `drawn`, float32 or float64.
GeneratorPtr normal_generator(const Key& key, DType drawn);
GeneratorPtr truncated_normal_generator(const Key& key, DType drawn, double lower, double upper);
GeneratorPtr uniform_generator(const Key& key, DType drawn, double low, double high);
GeneratorPtr exponential_generator(const Key& key, DType drawn);
GeneratorPtr gumbel_generator(const Key& key, DType drawn);
// Booleans, true with this probability.
GeneratorPtr bernoulli_generator(const Key& key, double p);
// first + r with 0 <= r < span (span 0: r is any number of the type's width), in `drawn`: int32, int64 or uint8.
GeneratorPtr integer_generator(const Key& key, DType drawn, int64_t first, uint64_t span);
// 32 random bits each, in int64.
GeneratorPtr bit_generator(const Key& key);

}  // namespace tessera::detail
