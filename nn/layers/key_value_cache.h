// KeyValueCache: the keys and values of a sequence so far, in buffers with free positions for the next tokens.
#pragma once

#include <cstdint>
#include <memory>

#include "sharding/array/array.h"

namespace tessera::nn {

namespace detail {
struct CacheBuffers;
}

// The keys and values of all positions so far, which the next position attends to. They are views of buffers with free
// positions at the end, so most tokens are appended without copying the others. When the buffers are full, their length
// doubles. Copies of a cache are independent: two copies that continue one sequence do not see each other's tokens.
struct KeyValueCache {
  Array keys, values;  // (batch, length, kv_heads, head_dim); absent at first
  std::shared_ptr<detail::CacheBuffers> buffers = {};

  int64_t length() const { return keys.is_absent() ? 0 : keys.shape(1); }
  void append(const Array& new_keys, const Array& new_values);
};

}  // namespace tessera::nn
