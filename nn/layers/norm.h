// Normalization layers.
#pragma once

#include "nn/init.h"
#include "nn/param.h"
#include "sharding/operations.h"

namespace tessera::nn {

// (x - mean) / sqrt(var + eps) * scale + bias over the last dim. Ba, Kiros and Hinton, "Layer normalization" (2016).
struct LayerNorm {
  Param scale;  // ones at first
  Param bias;   // zeros at first
  double eps = 1e-5;

  static LayerNorm init(const Axis& axis, double eps = 1e-5);
  Array operator()(Operand x) const;
};

// x / sqrt(mean(x^2) + eps) * scale over the last dim. Zhang and Sennrich, "Root mean square layer normalization"
// (2019).
struct RMSNorm {
  Param scale;  // ones at first
  double eps = 1e-5;

  static RMSNorm init(const Axis& axis, double eps = 1e-5);
  Array operator()(Operand x) const;
};

}  // namespace tessera::nn
