// Reductions, and what is computed along a dim.
#pragma once

#include "sharding/operand.h"

namespace tessera {

// Over these dims, or all: mean(x), mean(x, {1}), sum(x, {0, -1}). Over a sharded dim the result is a pending sum:
// float32[4]{U:data}, summed when it is needed. Integer and boolean sums are int32.
Array sum(Operand x, Dims dims = {}, bool keepdims = false);
Array mean(Operand x, Dims dims = {}, bool keepdims = false);

// exp(x) / sum(exp(x)) along one dim, which is gathered first if it is sharded.
Array softmax(Operand x, int dim = -1);

}  // namespace tessera
