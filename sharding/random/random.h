// Random arrays: recipes whose values depend on the key and the global index only.
#pragma once

#include <optional>

#include "sharding/operations/operand.h"
#include "sharding/random/key.h"

namespace tessera {

// All functions but categorical, permutation and dropout return a recipe. It takes no memory until it is used or
// placed: device_put(normal(key, shape), sharding) draws on each device its own block only, with the same values on
// every mesh. `0.02 * normal(key, {512, 2048})` and astype of it are recipes too.
// Floating dtypes other than float64 are drawn in float32 and cast: in half precision a number just below its upper
// bound becomes the bound.

// jax.random.normal(key, shape, dtype), to 1e-6. dtype is a floating one.
Array normal(const Key& key, Shape shape, DType dtype = float32);

// jax.random.truncated_normal(key, lower, upper, shape, dtype).
Array truncated_normal(const Key& key, double lower, double upper, Shape shape, DType dtype = float32);

// jax.random.uniform(key, shape, dtype, low, high), bit for bit.
Array uniform(const Key& key, Shape shape, double low = 0, double high = 1, DType dtype = float32);

// jax.random.exponential and jax.random.gumbel, to 1e-6.
Array exponential(const Key& key, Shape shape, DType dtype = float32);
Array gumbel(const Key& key, Shape shape, DType dtype = float32);

// jax.random.bernoulli(key, p, shape): true with probability p, 0 <= p <= 1; bit for bit.
Array bernoulli(const Key& key, double p, Shape shape);

// jax.random.randint(key, shape, minval, maxval, dtype): integers in [minval, maxval), bit for bit. dtype is int32,
// int64 (JAX's with x64 on) or uint8. Error (invalid_argument): an empty range, or one that the type does not hold.
Array randint(const Key& key, Shape shape, int64_t minval, int64_t maxval, DType dtype = int32);

// jax.random.bits(key, shape, uint32) as int64 values, since there is no uint32.
Array bits(const Key& key, Shape shape);

// jax.random.categorical(key, logits, dim, shape): along `dim`, the index of one entry, drawn with the probabilities
// softmax(logits); int32. The result has the shape of logits without `dim`; dims that `shape` has in front of that are
// further draws. It is the argmax of logits + Gumbel noise, which each device draws for its own block of logits.
Array categorical(const Key& key, Operand logits, int dim = -1, const std::optional<Shape>& shape = std::nullopt);

// jax.random.permutation: 0 to n - 1 in random order, int32; and the slices of x along `dim` in that order.
Array permutation(const Key& key, int64_t n);
Array permutation(const Key& key, Operand x, int dim = 0);

// where(bernoulli(key, 1 - rate, x.shape()), x / (1 - rate), 0), 0 <= rate <= 1: flax.linen.Dropout. Each device draws
// the bits of its own block: they are the same on every mesh, bit for bit. For inference leave it out, or pass rate 0.
// Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting" (2014).
Array dropout(const Key& key, Operand x, double rate);

}  // namespace tessera
