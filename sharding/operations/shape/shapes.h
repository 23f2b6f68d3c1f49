// Operations on shapes: the same elements with another shape, in another order, copied along dims.
#pragma once

#include "sharding/operations/operand.h"

namespace tessera {

// The same elements in row-major order with another shape; one size may be -1. The mesh axes of a split dim go to its
// parts in order, those of merged dims follow each other on the merged dim; nothing moves as long as each block of x is
// a block of the result. Otherwise the mesh axes go to a dim that they divide, by a block_exchange; those that divide
// none are gathered.
Array reshape(Operand x, Shape shape, ResultOptions options = {});
Array ravel(Operand x);

// Dim i of the result is dim `order[i]` of x; without an order, the dims reversed.
Array transpose(Operand x, Dims order = {});
Array swapaxes(Operand x, int dim0, int dim1);
// Dim `from` becomes dim `to`, the others keep their order.
Array moveaxis(Operand x, int from, int to);

// x without these dims of size one, or without all dims of size one.
Array squeeze(Operand x, Dims dims = {});
// x with new dims of size one; `dims` are their places in the result.
Array expand_dims(Operand x, Dims dims);

// Copies along new leading dims and along dims of size one, as numpy broadcasts. The copies share one storage.
Array broadcast_to(Operand x, Shape shape, ResultOptions options = {});
// jax.lax.broadcast_in_dim: dim d of x is dim `dims[d]` of the result.
Array broadcast_in_dim(Operand x, Shape shape, Dims dims, ResultOptions options = {});

// numpy.repeat: every element `repeats` times in a row along `dim`. A sharded dim stays as it is.
Array repeat(Operand x, int64_t repeats, int dim, ResultOptions options = {});

}  // namespace tessera
