// Appends to the buffers in place if no other cache has written to their free positions.
#include <ATen/core/Tensor.h>

#include <algorithm>

#include "nn/layers/attention.h"
#include "sharding/array/array_impl.h"
#include "sharding/operations/index/slicing.h"
#include "sharding/operations/shape/joining.h"

namespace tessera::nn {

using namespace tessera::detail;
struct detail::CacheBuffers {
  Array keys, values;                    // (batch, capacity, kv_heads, head_dim)
  int64_t written = 0;                   // positions of the cache that wrote last
  Array all_keys = {}, all_values = {};  // that cache's arrays

  // Returns true if `more` positions fit after the cache's positions, and `cache` is the unchanged cache that wrote
  // last.
  bool fits(const KeyValueCache& cache, int64_t more) const {
    return written == cache.length() && written + more <= keys.shape(1) && all_keys.impl() == cache.keys.impl() &&
           all_values.impl() == cache.values.impl();
  }
};

using detail::CacheBuffers;

namespace {

constexpr int64_t min_free_positions = 32;

// Returns true if each device can append the positions of x to its buffer: they are not sharded and need no gradient.
bool can_be_written(const Array& x) {
  const ArrayImpl& impl = materialized(x, "decode");
  const bool is_whole = impl.type->dims.size() == 4 && impl.type->dims[1].empty();
  return is_whole &&
         std::none_of(impl.local.begin(), impl.local.end(), [](const at::Tensor& t) { return t.requires_grad(); });
}

bool lie_alike(const Array& a, const Array& b) {
  const Type &x = *a.impl()->type, &y = *b.impl()->type;
  return x.mesh == y.mesh && x.dims == y.dims && x.dtype == y.dtype && a.impl()->local.size() == b.impl()->local.size();
}

void write(const Array& into, const Array& positions, int64_t from) {
  for (size_t i = 0; i < positions.impl()->local.size(); ++i)
    into.impl()->local[i].narrow(1, from, positions.shape(1)).copy_(positions.impl()->local[i]);
}

Array longer(const Array& old, const Array& y) { return old.is_absent() ? y : concatenate({old, y}, 1); }

Array with_free_positions(const Array& x) {
  return pad(x, {{0, 0}, {0, std::max(min_free_positions, x.shape(1))}, {0, 0}, {0, 0}});
}

}  // namespace

void KeyValueCache::append(const Array& new_keys, const Array& new_values) {
  const int64_t before = length(), after = before + new_keys.shape(1);
  const bool can_append = buffers && buffers->fits(*this, new_keys.shape(1)) && can_be_written(new_keys) &&
                          can_be_written(new_values) && lie_alike(buffers->keys, new_keys) &&
                          lie_alike(buffers->values, new_values);
  if (can_append) {
    write(buffers->keys, new_keys, before), write(buffers->values, new_values, before);
  } else {
    const Array all_keys = longer(keys, new_keys), all_values = longer(values, new_values);
    if (!can_be_written(all_keys) || !can_be_written(all_values)) {
      *this = {.keys = all_keys, .values = all_values};
      return;
    }
    buffers =
        std::make_shared<CacheBuffers>(CacheBuffers{with_free_positions(all_keys), with_free_positions(all_values)});
  }
  buffers->written = after;
  buffers->all_keys = keys = slice_in_dim(buffers->keys, 0, after, 1);
  buffers->all_values = values = slice_in_dim(buffers->values, 0, after, 1);
}

}  // namespace tessera::nn
