// BatchNorm: normalization over the batch, with running statistics for inference.
#pragma once

#include "nn/layers/init.h"
#include "nn/tree/param.h"
#include "sharding/operations/reduce/reductions.h"

namespace tessera::nn {

// Defaults of flax.linen.BatchNorm. PyTorch's momentum m is 1 - m here: its default 0.1 is 0.9.
struct BatchNormOptions {
  double momentum = 0.99;
  double eps = 1e-5;
  DTypePolicy dtypes = {};
};

// Normalizes each feature over the batch, (..., features) -> the same: (x - mean) / sqrt(var + eps) * scale + bias,
// with statistics over all other dimensions. If the batch is sharded over mesh axes, the statistics cover the global
// batch and take two all-reduces of shape (features).
// In training (inference = false), a call uses the batch's statistics and updates the running ones by
//   running = momentum * running + (1 - momentum) * batch,
// so it is not const. nn::value_and_grad writes the new values back to the model. Both variances are biased (sum / n),
// as in Flax; PyTorch's running variance is sum / (n - 1). With inference = true, the running statistics are used and
// nothing changes. Statistics are kept in float32 or wider. Ioffe and Szegedy, "Batch normalization" (2015).
// Errors
//   shape_mismatch: a wrong last dimension, or no dimension before it
//   dtype_mismatch: a type that is not floating
//   invalid_argument: an empty batch in training; a momentum outside [0, 1]; an eps below 0 or not finite
struct BatchNorm {
  Param scale, bias;      // (features), initially ones and zeros
  Buffer mean, variance;  // (features), running statistics, initially zeros and ones
  double momentum = 0.99;
  double eps = 1e-5;
  bool inference = false;
  DTypePolicy dtypes = {};

  static BatchNorm init(const Axis& features, const BatchNormOptions& options = {});
  Array operator()(Operand x);
};

}  // namespace tessera::nn
