// Slices of arrays. x.index({...}) and x.at({...}) are in array.h.
#pragma once

#include <concepts>
#include <utility>

#include "sharding/operations/operand.h"

namespace tessera {

// Along dimensions that are not sharded nothing is communicated. Along a sharded dimension every device receives the
// missing elements of its block of the result (block_exchange in ledgers). The dimension keeps the mesh axes that
// divide its new size.

// Returns the elements start[d], start[d] + strides[d], ... before limit[d], as jax.lax.slice. Errors
// (invalid_argument): a start or limit outside 0 <= start <= limit <= size, a stride below 1.
Array slice(Operand x, Shape start, Shape limit, Shape strides = {});
// Returns x[..., start:stop, ...] along one dimension.
Array slice_in_dim(Operand x, int64_t start, int64_t stop, int dim);
// Returns the elements at one index of a dimension, as jax.lax.index_in_dim; the dimension stays, of size one, or is
// removed. A negative index counts from the end.
Array index_in_dim(Operand x, int64_t index, int dim = 0, bool keepdims = true);

// Returns `sizes` elements from `start` on, as jax.lax.dynamic_slice; a slice that would end outside begins earlier.
// `start` may be an array of one integer per dimension: inside shard_map every device has its own. Differentiable in x.
Array dynamic_slice(Operand x, Shape start, Shape sizes);
Array dynamic_slice_from(Operand x, const Array& start, Shape sizes);
template <std::same_as<Array> Start>
Array dynamic_slice(Operand x, const Start& start, Shape sizes) {
  return dynamic_slice_from(x, start, std::move(sizes));
}
Array dynamic_index_in_dim(Operand x, int64_t index, int dim = 0, bool keepdims = true);
Array dynamic_index_in_dim(Operand x, const Array& index, int dim = 0, bool keepdims = true);  // one integer

namespace detail {

// Returns the start of a slice of these sizes: a negative start counts from the end, and one too large is reduced so
// that the slice ends inside x.
// Errors
//   invalid_argument: not one start and size per dimension
//   shape_mismatch: sizes larger than x's
Shape clamped_start(const char* verb, const Array& x, Shape start, const Shape& sizes);

}  // namespace detail

// Replaces the elements of x from `start` on by `update`; an update that would end outside begins earlier.
Array dynamic_update_slice(Operand x, const Array& update, Shape start);
// Updates x as dynamic_update_slice does. `start` is an array of one integer per dimension: inside shard_map every
// device has its own.
Array dynamic_update_slice_from(Operand x, const Array& update, const Array& start);
template <std::same_as<Array> Start>
Array dynamic_update_slice(Operand x, const Array& update, const Start& start) {
  return dynamic_update_slice_from(x, update, start);
}

}  // namespace tessera
