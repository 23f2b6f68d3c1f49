// Operations on shapes: reshape, reorder, and copy along dimensions.
#pragma once

#include "sharding/operations/operand.h"

namespace tessera {

// Returns the same elements in row-major order with another shape; one size may be -1. The mesh axes of a split
// dimension are assigned to the new dimensions in order. The mesh axes of merged dimensions are concatenated. Nothing
// is communicated if each block of x is a block of the result. Otherwise a block_exchange moves the mesh axes to a
// dimension that they divide, and axes that divide none are gathered.
Array reshape(Operand x, Shape shape, ResultOptions options = {});
Array ravel(Operand x);

// Permutes dimensions: dimension i of the result is dimension `order[i]` of x; without an order, dimensions are
// reversed.
Array transpose(Operand x, Dims order = {});
Array swapaxes(Operand x, int dim0, int dim1);
// Moves dimension `from` to position `to`; the others keep their order.
Array moveaxis(Operand x, int from, int to);

// Removes these dimensions of size one, or all dimensions of size one.
Array squeeze(Operand x, Dims dims = {});
// Inserts dimensions of size one; `dims` are their positions in the result.
Array expand_dims(Operand x, Dims dims);

// Copies x along new leading dimensions and along dimensions of size one, as numpy broadcasts. The copies share one
// storage.
Array broadcast_to(Operand x, Shape shape, ResultOptions options = {});
// Broadcasts x as jax.lax.broadcast_in_dim: dimension d of x is dimension `dims[d]` of the result.
Array broadcast_in_dim(Operand x, Shape shape, Dims dims, ResultOptions options = {});

// Repeats every element `repeats` times in a row along `dim`, as numpy.repeat. A sharded dimension stays sharded.
Array repeat(Operand x, int64_t repeats, int dim, ResultOptions options = {});

}  // namespace tessera
