// Softmax and its logarithm, along a dim.
#pragma once

#include "sharding/operations/operand.h"

namespace tessera {

// exp(x) / sum(exp(x)) along one dim, and its logarithm. Over a sharded dim x stays where it is: two all_reduces, of
// the largest elements and of the sums, and one in the backward pass.
Array softmax(Operand x, int dim = -1);
Array log_softmax(Operand x, int dim = -1);

}  // namespace tessera
