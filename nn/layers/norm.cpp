// The norms' starting values.
#include "nn/layers/norm.h"

namespace tessera::nn {

LayerNorm LayerNorm::init(const Axis& axis, double eps) {
  return {.scale = {ones({axis.size}), {axis}}, .bias = {zeros({axis.size}), {axis}}, .eps = eps};
}

Array LayerNorm::operator()(const Array& x) const { return layer_norm(x, scale, bias, eps); }

}  // namespace tessera::nn
