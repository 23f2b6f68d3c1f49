// Matrix products whose gradient is one function for all slots.
#pragma once

#include "sharding/operations/operand.h"

namespace tessera::detail {

// matmul without its options.
Array matrix_product(const Operand& a, const Operand& b);

// matmul(x, kernel) + bias, of shapes (..., in), (in, out) and (out): where that communicates the same, as one
// function, which writes the result once. The ledger calls it "matmul".
Array linear(const Operand& x, const Operand& kernel, const Operand& bias);

}  // namespace tessera::detail
