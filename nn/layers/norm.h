// Normalization over features: LayerNorm, RMSNorm, GroupNorm.
#pragma once

#include "nn/layers/dtype_policy.h"
#include "nn/layers/init.h"
#include "nn/tree/param.h"
#include "sharding/operations/elementwise/elementwise.h"

namespace tessera::nn {

// All: (..., features) -> the same, features last. Means are computed in float32 or wider. Errors: another last dim
// (shape_mismatch), a type that is not floating (dtype_mismatch), an eps below 0 or not finite (invalid_argument).

// (x - mean) / sqrt(var + eps) * scale + bias over the last dim. Ba, Kiros and Hinton, "Layer normalization" (2016).
// eps is Equinox's and PyTorch's (flax: 1e-6).
struct LayerNorm {
  Param scale;  // (features), ones at first
  Param bias;   // (features), zeros at first
  double eps = 1e-5;
  DTypePolicy dtypes = {};

  static LayerNorm init(const Axis& axis, double eps = 1e-5, const DTypePolicy& dtypes = {});
  Array operator()(Operand x) const;
};

// x / sqrt(mean(x^2) + eps) * (offset + scale) over the last dim. Zhang and Sennrich, "Root mean square layer
// normalization" (2019). Gemma has an offset of 1 and a scale that starts with zeros; their sum is of float32 at least.
struct RMSNorm {
  Param scale;  // (features), ones at first
  double eps = 1e-5;
  double offset = 0;
  DTypePolicy dtypes = {};

  static RMSNorm init(const Axis& axis, double eps = 1e-5, const DTypePolicy& dtypes = {});
  Array operator()(Operand x) const;
};

// (batch, spatial dims..., features) -> the same: in each row of the batch, the features of one group are normalized
// together over all places, as by LayerNorm; then * scale + bias for each feature. One group normalizes all features
// together; as many groups as features is instance normalization. Wu and He, "Group normalization" (2018). eps is
// Equinox's and PyTorch's (flax: 1e-6).
struct GroupNorm {
  Param scale;  // (features), ones at first
  Param bias;   // (features), zeros at first
  int64_t groups = 1;
  double eps = 1e-5;
  DTypePolicy dtypes = {};

  // Error (invalid_argument): a number of groups that does not divide the features.
  static GroupNorm init(const Axis& features, int64_t groups, double eps = 1e-5, const DTypePolicy& dtypes = {});
  Array operator()(Operand x) const;
};

}  // namespace tessera::nn
