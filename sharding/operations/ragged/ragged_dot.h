// ragged_dot: each row of a matrix times the matrix of its group.
#pragma once

#include "sharding/operations/operand.h"

namespace tessera {

// jax.lax.ragged_dot, of every matrix of a batch: x (..., rows, in), of which the first sizes[..., 0] rows belong to
// group 0, the next sizes[..., 1] to group 1, and so on; kernels (groups, in, out); sizes (..., groups), integers
// -> (..., rows, out). Rows beyond all groups get zeros. Groups may be sharded: each device computes the rows of its
// own, and the result is a pending sum. On an abstract mesh, which has no sizes, groups count as equal.
// On a CPU, and where groups are sharded, the host reads the sizes, and each group's product has its rows. On an
// accelerator that has all groups it reads nothing: rows lie in tiles of ceil(n / groups) places (n: of all matrices),
// filled up with zeros, in as many as any sizes could need. So n rows cost as much as less than 2 n + groups in one
// batched product, and each direction copies the kernels of the tiles, at most 2 groups, half of them at a time; no
// group costs the rows of the others. For the backward pass the sorted rows and their places are kept, not the copies.
// Of sharded groups any device may be asked for all rows: without the sizes each would compute as many as all.
// Errors: sizes that are not integers (dtype_mismatch), shapes that do not fit (shape_mismatch), a size below zero or
// more rows than there are (invalid_argument; where the host reads nothing with the next value that is read, and the
// nearest sizes are used).
Array ragged_dot(Operand x, const Array& kernels, const Array& sizes);

}  // namespace tessera
