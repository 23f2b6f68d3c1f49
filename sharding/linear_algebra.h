// Products of matrices.
#pragma once

#include "sharding/operand.h"

namespace tessera {

// numpy.matmul: (..., i, k) x (..., k, j) -> (..., i, j), leading dims broadcast; one-dim operands are vectors.
Array matmul(Operand a, Operand b);

}  // namespace tessera
