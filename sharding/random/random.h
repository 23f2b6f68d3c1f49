// Random arrays: lazy initializers whose values depend only on the key and the global index.
#pragma once

#include <optional>

#include "sharding/operations/operand.h"
#include "sharding/random/key.h"

namespace tessera {

// All functions except categorical, permutation and dropout return a lazy initializer. It takes no memory until it is
// used or placed: device_put(normal(key, shape), sharding) draws on each device only its own block, with the same
// values on every mesh. `0.02 * normal(key, {512, 2048})` and astype of it are lazy, too.
// Floating dtypes other than float64 are drawn in float32 and cast. In half precision, a number just below its upper
// bound becomes the bound.

// Returns jax.random.normal(key, shape, dtype), to 1e-6. dtype must be floating.
Array normal(const Key& key, Shape shape, DType dtype = float32);

// Returns jax.random.truncated_normal(key, lower, upper, shape, dtype).
Array truncated_normal(const Key& key, double lower, double upper, Shape shape, DType dtype = float32);

// Returns jax.random.uniform(key, shape, dtype, low, high), bit for bit.
Array uniform(const Key& key, Shape shape, double low = 0, double high = 1, DType dtype = float32);

// Return jax.random.exponential and jax.random.gumbel, to 1e-6.
Array exponential(const Key& key, Shape shape, DType dtype = float32);
Array gumbel(const Key& key, Shape shape, DType dtype = float32);

// Returns jax.random.bernoulli(key, p, shape), bit for bit: true with probability p, 0 <= p <= 1.
Array bernoulli(const Key& key, double p, Shape shape);

// Returns jax.random.randint(key, shape, minval, maxval, dtype), bit for bit: integers in [minval, maxval). dtype is
// int32, int64 (as JAX with x64 enabled) or uint8. Throws invalid_argument if the range is empty or exceeds the type.
Array randint(const Key& key, Shape shape, int64_t minval, int64_t maxval, DType dtype = int32);

// Returns jax.random.bits(key, shape, uint32) as int64 values, because there is no uint32.
Array bits(const Key& key, Shape shape);

// Returns jax.random.categorical(key, logits, dim, shape): indices along `dim`, int32, drawn with probabilities
// softmax(logits). The result has the shape of logits without `dim`; additional leading dimensions of `shape` are
// further draws. Computed as the argmax of logits + Gumbel noise, which each device draws for its own block of logits.
Array categorical(const Key& key, Operand logits, int dim = -1, const std::optional<Shape>& shape = std::nullopt);

// Return jax.random.permutation: 0 to n - 1 in random order, int32; and the slices of x along `dim` in that order.
Array permutation(const Key& key, int64_t n);
Array permutation(const Key& key, Operand x, int dim = 0);

// Returns where(bernoulli(key, 1 - rate, x.shape()), x / (1 - rate), 0), 0 <= rate <= 1, as flax.linen.Dropout. Each
// device draws the bits of its own block, which are the same on every mesh, bit for bit. For inference, omit it or pass
// rate 0. Source: Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting" (2014).
Array dropout(const Key& key, Operand x, double rate);

}  // namespace tessera
