// Slices: parts of arrays. x.index({...}) and x.at({...}) are in array.h.
#pragma once

#include <concepts>
#include <utility>

#include "sharding/operations/operand.h"

namespace tessera {

// Along dims that are not sharded nothing moves. Along a sharded dim every device receives the elements of its block of
// the result that it lacks (block_exchange in ledgers); the dim keeps its mesh axes as far as they divide its new size.

// jax.lax.slice: start[d], start[d] + strides[d], ... before limit[d]. Errors (invalid_argument): a start or limit that
// is not in 0 <= start <= limit <= size, a stride below 1.
Array slice(Operand x, Shape start, Shape limit, Shape strides = {});
// x[..., start:stop, ...] along one dim.
Array slice_in_dim(Operand x, int64_t start, int64_t stop, int dim);
// jax.lax.index_in_dim: the elements at one index of a dim; the dim stays, of size one, or is removed. A negative index
// counts from the end.
Array index_in_dim(Operand x, int64_t index, int dim = 0, bool keepdims = true);

// jax.lax.dynamic_slice: `sizes` elements from `start` on; a slice that would end outside begins earlier. `start` may
// be an array of one integer per dim: inside shard_map every device has its own. Differentiable in x.
Array dynamic_slice(Operand x, Shape start, Shape sizes);
Array dynamic_slice_from(Operand x, const Array& start, Shape sizes);
template <std::same_as<Array> Start>
Array dynamic_slice(Operand x, const Start& start, Shape sizes) {
  return dynamic_slice_from(x, start, std::move(sizes));
}
Array dynamic_index_in_dim(Operand x, int64_t index, int dim = 0, bool keepdims = true);
Array dynamic_index_in_dim(Operand x, const Array& index, int dim = 0, bool keepdims = true);  // one integer

namespace detail {

// Where a slice of these sizes begins: a negative start counts from the end, and one too large is reduced so that the
// slice ends inside x. Errors: not one start and size per dim (invalid_argument), sizes larger than x's
// (shape_mismatch).
Shape clamped_start(const char* verb, const Array& x, Shape start, const Shape& sizes);

}  // namespace detail

// x with the elements from `start` on replaced by `update`; an update that would end outside begins earlier.
Array dynamic_update_slice(Operand x, const Array& update, Shape start);
// The same with an array of one integer per dim: inside shard_map every device has its own.
Array dynamic_update_slice_from(Operand x, const Array& update, const Array& start);
template <std::same_as<Array> Start>
Array dynamic_update_slice(Operand x, const Array& update, const Start& start) {
  return dynamic_update_slice_from(x, update, start);
}

}  // namespace tessera
