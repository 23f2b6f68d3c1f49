// KeyValueCache: the keys and values of a text so far, with room for those that follow.
#pragma once

#include <cstdint>
#include <memory>

#include "sharding/array/array.h"

namespace tessera::nn {

namespace detail {
struct CacheRoom;
}

// The keys and values of all positions so far, which the next position attends to. They lie in memory that is twice as
// long as was needed last, so that most tokens are written behind the others without a copy. Copies of a cache are
// caches of their own: two that go on from one text do not see each other's tokens.
struct KeyValueCache {
  Array keys, values;  // (batch, length, kv_heads, head_dim); absent at first
  std::shared_ptr<detail::CacheRoom> room = {};

  int64_t length() const { return keys.is_absent() ? 0 : keys.shape(1); }
  void append(const Array& new_keys, const Array& new_values);
};

}  // namespace tessera::nn
