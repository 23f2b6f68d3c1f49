// Writing behind what is there, as long as nobody else has.
#include "nn/layers/key_value_cache.h"

#include <ATen/core/Tensor.h>

#include <algorithm>

#include "sharding/array/array_impl.h"
#include "sharding/operations/joining.h"
#include "sharding/operations/slicing.h"

namespace tessera::nn {

using namespace tessera::detail;
struct detail::CacheRoom {
  Array keys, values;                    // (batch, room, kv_heads, head_dim)
  int64_t written = 0;                   // positions that a cache has
  Array all_keys = {}, all_values = {};  // that cache's

  // Whether so many more positions have room behind those of a cache, which is the last that was written, unchanged.
  bool holds(const KeyValueCache& cache, int64_t more) const {
    return written == cache.length() && written + more <= keys.shape(1) && all_keys.impl() == cache.keys.impl() &&
           all_values.impl() == cache.values.impl();
  }
};

using detail::CacheRoom;

namespace {

constexpr int64_t least_room = 32;

// Whether the positions of x can be written one behind another on each device, outside of a differentiation.
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

Array with_room(const Array& x) { return pad(x, {{0, 0}, {0, std::max(least_room, x.shape(1))}, {0, 0}, {0, 0}}); }

}  // namespace

void KeyValueCache::append(const Array& new_keys, const Array& new_values) {
  const int64_t before = length(), after = before + new_keys.shape(1);
  const bool has_room = room && room->holds(*this, new_keys.shape(1)) && can_be_written(new_keys) &&
                        can_be_written(new_values) && lie_alike(room->keys, new_keys) &&
                        lie_alike(room->values, new_values);
  if (has_room) {
    write(room->keys, new_keys, before), write(room->values, new_values, before);
  } else {
    const Array all_keys = longer(keys, new_keys), all_values = longer(values, new_values);
    if (!can_be_written(all_keys) || !can_be_written(all_values)) {
      *this = {.keys = all_keys, .values = all_values};
      return;
    }
    room = std::make_shared<CacheRoom>(CacheRoom{with_room(all_keys), with_room(all_values)});
  }
  room->written = after;
  room->all_keys = keys = slice_in_dim(room->keys, 0, after, 1);
  room->all_values = values = slice_in_dim(room->values, 0, after, 1);
}

}  // namespace tessera::nn
