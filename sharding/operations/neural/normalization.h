// Normalization: layer_norm and rms_norm.
#pragma once

#include "sharding/operations/operand.h"

namespace tessera {

// Error (invalid_argument) of all: an eps below 0 or not finite.

// (x - mean) / sqrt(var + eps) over the last dim, then * scale + bias, which have its size. Over a sharded dim x stays
// where it is: two small all_reduces, and one in the backward pass; a sharded scale leaves the result sharded as it is.
// Ba, Kiros and Hinton, "Layer normalization" (2016).
Array layer_norm(Operand x, double eps = 1e-5);
Array layer_norm(Operand x, const Array& scale, const Array& bias, double eps = 1e-5);

// x / sqrt(mean(x^2) + eps) * scale over the last dim; over a sharded one a single all_reduce each way. Zhang and
// Sennrich, "Root mean square layer normalization" (2019).
Array rms_norm(Operand x, double eps = 1e-5);
Array rms_norm(Operand x, const Array& scale, double eps = 1e-5);

// exp(x) / sum(exp(x)) along one dim, and its logarithm. Over a sharded dim x stays where it is: two all_reduces, of
// the largest elements and of the sums, and one in the backward pass.
Array softmax(Operand x, int dim = -1);
Array log_softmax(Operand x, int dim = -1);

}  // namespace tessera
