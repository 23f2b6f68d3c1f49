// BatchNorm: normalization over the batch, with running statistics for inference.
#pragma once

#include "nn/layers/dtype_policy.h"
#include "nn/tree/param.h"
#include "sharding/operations/reduce/reductions.h"

namespace tessera::nn {

// The defaults of flax.linen.BatchNorm. PyTorch's momentum m is 1 - m here: its default 0.1 is 0.9.
struct BatchNormOptions {
  double momentum = 0.99;
  double eps = 1e-5;
  DTypePolicy dtypes = {};
};

// (..., features) -> the same: (x - mean) / sqrt(var + eps) * scale + bias for each feature, with statistics over all
// other dims. A batch that is sharded over mesh axes is one batch: its statistics are global, by two all_reduces of
// (features). In training (inference = false), a call uses the batch's statistics and moves the running ones towards
// them,
//   running = momentum * running + (1 - momentum) * batch,
// so it is not const; nn::value_and_grad writes the new values back to the model. The variance is the biased one (sum /
// n) in both places, as in Flax (PyTorch's running variance is sum / (n - 1)). With inference = true the running
// statistics are used and nothing changes. Statistics are kept in float32 or wider.
// Ioffe and Szegedy, "Batch normalization" (2015).
// Errors: another last dim, no other dim (shape_mismatch), a type that is not floating (dtype_mismatch), an empty batch
// in training, a momentum outside [0, 1], an eps below 0 or not finite (invalid_argument).
struct BatchNorm {
  Param scale, bias;      // (features), ones and zeros at first
  Buffer mean, variance;  // (features), the running statistics, zeros and ones at first
  double momentum = 0.99;
  double eps = 1e-5;
  bool inference = false;
  DTypePolicy dtypes = {};

  static BatchNorm init(const Axis& features, const BatchNormOptions& options = {});
  Array operator()(Operand x);
};

}  // namespace tessera::nn
