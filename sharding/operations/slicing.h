// Slices: parts of arrays. x.at(...) is in array.h.
#pragma once

#include "sharding/operations/operand.h"

namespace tessera {

// Along dims that are not sharded nothing moves. Along a sharded one every device gets those elements of its block of
// the result that it lacks from the devices that have them (block_exchange in ledgers); the result keeps the dim's mesh
// axes as far as they divide its new size.

// jax.lax.slice: start[d], start[d] + strides[d], ... before limit[d]. Errors (bad_argument): a start or limit that is
// not in 0 <= start <= limit <= size, a stride below 1.
Array slice(Operand x, Shape start, Shape limit, Shape strides = {});
// x[..., start:stop, ...] along one dim.
Array slice_in_dim(Operand x, int64_t start, int64_t stop, int dim);
// jax.lax.index_in_dim: the elements at one place of a dim, which stays with size one or goes. A negative place counts
// from the end.
Array index_in_dim(Operand x, int64_t index, int dim = 0, bool keepdims = true);

// jax.lax.dynamic_slice: `sizes` elements from `start` on, which is moved back where the slice would end outside.
// Starts may be computed: an array of one integer for each dim, whose values are read. Of one dim, write Shape{3}: {3}
// alone may be either.
Array dynamic_slice(Operand x, Shape start, Shape sizes);
Array dynamic_slice(Operand x, const Array& start, Shape sizes);
Array dynamic_index_in_dim(Operand x, int64_t index, int dim = 0, bool keepdims = true);

namespace detail {

// Where a slice of these sizes begins: below zero counted from the end, and moved back where it would end outside.
// Errors: not one for each dim (bad_argument), sizes larger than x's (shape_mismatch).
Shape clamped_start(const char* verb, const Array& x, Shape start, const Shape& sizes);

}  // namespace detail

}  // namespace tessera
