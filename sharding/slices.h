// Parts of arrays and arrays made of parts: slices, pads, shifts, joins. x.at(...) is in array.h.
#pragma once

#include <source_location>
#include <utility>
#include <vector>

#include "sharding/operand.h"

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
// Starts may be computed: an array of one integer for each dim, whose values are read.
Array dynamic_slice(Operand x, Shape start, Shape sizes);
Array dynamic_slice(Operand x, const Array& start, Shape sizes);
Array dynamic_index_in_dim(Operand x, int64_t index, int dim = 0, bool keepdims = true);
// x with `update` in the place of what was there from `start` on, moved back where it would end outside.
Array dynamic_update_slice(Operand x, const Array& update, Shape start);

// numpy.pad with a constant: `widths[d]` elements before and after.
Array pad(Operand x, std::vector<std::pair<int64_t, int64_t>> widths, double value = 0);
// The order of the elements reversed along these dims, or all.
Array flip(Operand x, Dims dims = {});
// numpy.roll: elements shifted along a dim, those that leave at one end enter at the other; without a dim, of the
// flattened array.
Array roll(Operand x, int64_t shift);
Array roll(Operand x, int64_t shift, int dim);
// numpy.tile: copies of the whole side by side; reps are aligned with the last dims.
Array tile(Operand x, Shape reps);

// numpy.concatenate: one or more arrays, one behind the other along `dim`. Different element types are promoted as in
// JAX.
Array concatenate(const std::vector<Array>& arrays, int dim = 0,
                  std::source_location where = std::source_location::current());
// The same along a new dim of the result.
Array stack(const std::vector<Array>& arrays, int dim = 0,
            std::source_location where = std::source_location::current());
// numpy.split: equal parts along `dim`, or parts that begin at 0 and at each of `places`. Errors (shape_mismatch): a
// dim that is not a multiple of `sections`.
std::vector<Array> split(Operand x, int64_t sections, int dim = 0);
std::vector<Array> split(Operand x, const std::vector<int64_t>& places, int dim = 0);

}  // namespace tessera
