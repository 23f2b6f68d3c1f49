// Operations on shapes: the same elements under another shape, in another order, cut and joined.
#pragma once

#include <source_location>
#include <vector>

#include "sharding/operand.h"

namespace tessera {

// The same elements in row-major order under another shape; one size may be -1. A dim that is split or merged keeps its
// mesh axes as long as they do not cut through a part; else it is gathered first.
Array reshape(Operand x, Shape shape);

// Dim i of the result is dim `order[i]` of x; without an order, the dims reversed.
Array transpose(Operand x, Dims order = {});
Array swapaxes(Operand x, int dim0, int dim1);

// x[..., start:stop, ...] along one dim, which is gathered first unless all of it is taken.
Array slice_in_dim(Operand x, int64_t start, int64_t stop, int dim);

// numpy.concatenate: one or more arrays, one behind the other along `dim`, which is gathered first where it is sharded.
// Different element types are promoted as in JAX.
Array concatenate(const std::vector<Array>& arrays, int dim = 0,
                  std::source_location where = std::source_location::current());

}  // namespace tessera
