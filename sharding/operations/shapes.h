// Operations on shapes: the same elements under another shape, in another order, copied along dims.
#pragma once

#include "sharding/operations/operand.h"

namespace tessera {

// The same elements in row-major order under another shape; one size may be -1. Mesh axes stay where they are as long
// as they cut no part in two: those of a split dim go to its parts in order, those of merged dims follow each other on
// the merged one. Other blocks are exchanged for such as cut another dim; what cuts none is gathered.
Array reshape(Operand x, Shape shape, ResultOptions options = {});
Array ravel(Operand x);

// Dim i of the result is dim `order[i]` of x; without an order, the dims reversed.
Array transpose(Operand x, Dims order = {});
Array swapaxes(Operand x, int dim0, int dim1);
// Dim `from` becomes dim `to`, the others keep their order.
Array moveaxis(Operand x, int from, int to);

// Without these dims of size one, or without all of them.
Array squeeze(Operand x, Dims dims = {});
// With new dims of size one, counted in the result.
Array expand_dims(Operand x, Dims dims);

// Copies along new leading dims and along dims of size one, as numpy broadcasts. The copies are views of one memory.
Array broadcast_to(Operand x, Shape shape, ResultOptions options = {});
// jax.lax.broadcast_in_dim: dim d of x is dim `dims[d]` of the result.
Array broadcast_in_dim(Operand x, Shape shape, Dims dims, ResultOptions options = {});

// numpy.repeat: every element `repeats` times in a row along `dim`. A sharded dim stays as it is.
Array repeat(Operand x, int64_t repeats, int dim, ResultOptions options = {});

}  // namespace tessera
