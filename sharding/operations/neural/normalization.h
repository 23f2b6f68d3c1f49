// Normalization: layer_norm, rms_norm and softmax.
#pragma once

#include "sharding/operations/operand.h"

namespace tessera {

// Error (invalid_argument) of layer_norm and rms_norm: an eps below 0 or not finite.

// Returns (x - mean) / sqrt(var + eps) over the last dimension, then * scale + bias, which have the size of this
// dimension. If it is sharded, x is not gathered: two small all_reduces, and one in the backward pass. A sharded scale
// leaves the result sharded the same way. Ba, Kiros and Hinton, "Layer normalization" (2016).
Array layer_norm(Operand x, double eps = 1e-5);
Array layer_norm(Operand x, const Array& scale, const Array& bias, double eps = 1e-5);

// Returns x / sqrt(mean(x^2) + eps) * scale over the last dimension. A sharded dimension takes a single all_reduce in
// each direction. Zhang and Sennrich, "Root mean square layer normalization" (2019).
Array rms_norm(Operand x, double eps = 1e-5);
Array rms_norm(Operand x, const Array& scale, double eps = 1e-5);

// Return exp(x) / sum(exp(x)) along one dimension, and its logarithm. Over a sharded dimension x is not gathered: two
// all_reduces, of the maxima and of the sums, and one in the backward pass.
Array softmax(Operand x, int dim = -1);
Array log_softmax(Operand x, int dim = -1);

}  // namespace tessera
