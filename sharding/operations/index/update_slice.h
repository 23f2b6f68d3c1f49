// dynamic_update_slice: an array with one box of it replaced.
#pragma once

#include <concepts>

#include "sharding/operations/operand.h"

namespace tessera {

// x with the elements from `start` on replaced by `update`; an update that would end outside begins earlier.
Array dynamic_update_slice(Operand x, const Array& update, Shape start);
// The same with an array of one integer per dim: inside shard_map every device has its own.
Array dynamic_update_slice_from(Operand x, const Array& update, const Array& start);
template <std::same_as<Array> Start>
Array dynamic_update_slice(Operand x, const Array& update, const Start& start) {
  return dynamic_update_slice_from(x, update, start);
}

}  // namespace tessera
