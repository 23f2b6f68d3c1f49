// The norms' starting values.
#include "nn/layers/norm.h"

namespace tessera::nn {

LayerNorm LayerNorm::init(const Axis& axis, double eps) {
  return {.scale = {ones({axis.size}), {axis}}, .bias = {zeros({axis.size}), {axis}}, .eps = eps};
}

Array LayerNorm::operator()(Operand x) const { return layer_norm(x, scale, bias, eps); }

RMSNorm RMSNorm::init(const Axis& axis, double eps) { return {.scale = {ones({axis.size}), {axis}}, .eps = eps}; }

Array RMSNorm::operator()(Operand x) const { return rms_norm(x, scale, eps); }

}  // namespace tessera::nn
