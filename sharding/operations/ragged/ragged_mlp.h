// ragged_mlp: each row of a matrix through the gated perceptron of its group, as one operation.
#pragma once

#include "sharding/operations/operand.h"

namespace tessera {

// ragged_dot(silu(ragged_dot(x, gate, sizes)) * ragged_dot(x, up, sizes), down, sizes), with gate and up (groups, in,
// hidden) and down (groups, hidden, out) of x's element type. As one operation it needs no sum before its end: where
// groups are sharded each row is one device's from the first product to the last, and the result is a pending sum, as
// it is where hidden is sharded. Errors: those of ragged_dot.
Array ragged_mlp(Operand x, const Array& gate, const Array& up, const Array& down, const Array& sizes);

}  // namespace tessera
