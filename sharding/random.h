// Random arrays: recipes whose values depend on the key and the global index only.
#pragma once

#include "sharding/array.h"
#include "sharding/key.h"

namespace tessera {

// jax.random.normal(key, shape, dtype), to 1e-6. A recipe: `0.02 * normal(key, {512, 2048})` and astype of it are
// recipes too, and take no memory until they are placed, slice by slice, or used. dtype is a floating one.
Array normal(const Key& key, Shape shape, DType dtype = float32);

// jax.random.truncated_normal(key, lower, upper, shape, dtype).
Array truncated_normal(const Key& key, double lower, double upper, Shape shape, DType dtype = float32);

// jax.random.uniform(key, shape, dtype, low, high), bit for bit.
Array uniform(const Key& key, Shape shape, double low = 0, double high = 1, DType dtype = float32);

// jax.random.bits(key, shape, uint32) as int64 values, since there is no uint32: uncommitted.
Array bits(const Key& key, Shape shape);

}  // namespace tessera
