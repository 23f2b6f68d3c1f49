// WeightNorm: a layer whose kernel is a length times a direction.
#pragma once

#include <concepts>
#include <utility>

#include "nn/layers/module_scope.h"
#include "nn/tree/param.h"

namespace tessera::nn {

// kernel / norm(kernel) * length, the norm over all dims but the last. A zero column gives NaN, as in Equinox.
Array with_length(const Array& kernel, const Array& length);
// The norm of each column of a kernel (..., out), and its dim's name.
Param column_norms(const Param& kernel);

// A layer with a field `kernel` (..., out), Linear or Conv: what it computes, with the kernel g v / |v|, v being what
// it holds as kernel and |v| the norm of what leads to each output. At first g = |v|, so the layer computes what it
// did; for that, the kernel is computed whole once. Salimans and Kingma, "Weight normalization" (2016).
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
