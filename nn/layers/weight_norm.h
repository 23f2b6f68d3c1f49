// WeightNorm: a layer whose kernel is a length times a direction.
#pragma once

#include <concepts>
#include <utility>

#include "nn/layers/module_scope.h"
#include "nn/tree/param.h"

namespace tessera::nn {

// kernel / norm(kernel) * length, the norm over all dims but the last. A zero column gives NaN, as in Equinox.
Array with_length(const Array& kernel, const Array& length);
// The norm of each column of a kernel (..., out), as a Param (out) with the name of the kernel's last dim.
Param column_norms(const Param& kernel);

// Calls a layer that has a field `kernel` (..., out), such as Linear or Conv, with the kernel g v / |v|: g is `length`,
// v the layer's own kernel, |v| the norm of v for each output. At first g = |v|, so the layer computes what it did
// before; for that, init computes the whole kernel once. Salimans and Kingma, "Weight normalization" (2016).
template <class Layer>
struct WeightNorm {
  Layer layer;
  Param length;  // (out)

  static WeightNorm init(Layer layer) {
    Param length = column_norms(layer.kernel);
    return {.layer = std::move(layer), .length = std::move(length)};
  }
  template <class... Args>
  requires std::invocable<const Layer&, const Args&...> Array operator()(const Args&... args) const {
    const ModuleScope scope(*this);
    Layer normalized = layer;
    normalized.kernel.value = with_length(layer.kernel, length);
    return normalized(args...);
  }
};

}  // namespace tessera::nn
