// ragged_dot: each row of a matrix times the matrix of its group.
#pragma once

#include "sharding/operations/operand.h"

namespace tessera {

// jax.lax.ragged_dot, of every matrix of a batch: x (..., rows, in), of which the first sizes[..., 0] rows belong to
// group 0, the next sizes[..., 1] to group 1, and so on; kernels (groups, in, out); sizes (..., groups), integers
// -> (..., rows, out). Rows beyond all groups get zeros. Groups may be sharded: each device computes the rows of its
// own, and the result is a pending sum. On an abstract mesh, which has no sizes, groups count as equal.
// Errors: sizes that are not integers (dtype_mismatch), shapes that do not fit (shape_mismatch), a size below zero or
// more rows than there are (bad_argument).
Array ragged_dot(Operand x, const Array& kernels, const Array& sizes);

}  // namespace tessera
