// Normalization over features: LayerNorm, RMSNorm and GroupNorm.
#pragma once

#include "nn/layers/init.h"
#include "nn/tree/param.h"
#include "sharding/operations/elementwise/elementwise.h"

namespace tessera::nn {

// All norms map (..., features) -> the same, features last. Means are computed in float32 or wider.
// Errors
//   shape_mismatch: a wrong last dimension
//   dtype_mismatch: a type that is not floating
//   invalid_argument: an eps below 0 or not finite

// Computes (x - mean) / sqrt(var + eps) * scale + bias over the last dimension. The default eps is Equinox's and
// PyTorch's (flax: 1e-6). Ba, Kiros and Hinton, "Layer normalization" (2016).
struct LayerNorm {
  Param scale;  // (features), initially ones
  Param bias;   // (features), initially zeros
  double eps = 1e-5;
  DTypePolicy dtypes = {};

  static LayerNorm init(const Axis& axis, double eps = 1e-5, const DTypePolicy& dtypes = {});
  Array operator()(Operand x) const;
};

// Computes x / sqrt(mean(x^2) + eps) * (offset + scale) over the last dimension. Gemma uses offset 1 and a scale that
// is initially zero; offset + scale is float32 or wider. Zhang and Sennrich, "Root mean square layer normalization"
// (2019).
struct RMSNorm {
  Param scale;  // (features), initially ones
  double eps = 1e-5;
  double offset = 0;
  DTypePolicy dtypes = {};

  static RMSNorm init(const Axis& axis, double eps = 1e-5, const DTypePolicy& dtypes = {});
  Array operator()(Operand x) const;
};

// Normalizes groups of features, (batch, spatial..., features) -> the same. In each row of the batch, the features of
// one group are normalized together over all positions, as by LayerNorm. Each feature is then multiplied by its scale,
// and its bias is added. One group normalizes all features together; as many groups as features is instance
// normalization. The default eps is Equinox's and PyTorch's (flax: 1e-6). Wu and He, "Group normalization" (2018).
struct GroupNorm {
  Param scale;  // (features), initially ones
  Param bias;   // (features), initially zeros
  int64_t groups = 1;
  double eps = 1e-5;
  DTypePolicy dtypes = {};

  // Makes scales of one and biases of zero. Error (invalid_argument): a number of groups that does not divide the
  // features.
  static GroupNorm init(const Axis& features, int64_t groups, double eps = 1e-5, const DTypePolicy& dtypes = {});
  Array operator()(Operand x) const;
};

}  // namespace tessera::nn
