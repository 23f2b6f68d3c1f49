// SpectralNorm: a layer whose kernel is divided by its largest singular value.
#pragma once

#include <concepts>
#include <utility>

#include "nn/layers/module_scope.h"
#include "nn/tree/param.h"
#include "sharding/random/key.h"

namespace tessera::nn {

// equinox.nn.SpectralNorm's defaults.
struct SpectralNormOptions {
  int64_t num_power_iterations = 1;  // of the power method in each call
  double eps = 1e-12;      // the least norm that a vector is divided by
};

// The two vectors of the power method, for a kernel (..., out) taken as a matrix (in, out).
struct PowerIteration {
  Buffer in, out;  // of norm one
  int64_t iterations = 1;
  double eps = 1e-12;

  // Starts with random vectors and fifteen iterations, as Equinox and PyTorch do. Errors (invalid_argument):
  // num_power_iterations below 1, an eps below 0 or not finite.
  static PowerIteration init(const Key& key, const Param& kernel, const SpectralNormOptions& options);
  // Runs `iterations` more iterations, without a gradient for the kernel.
  void step(const Array& kernel);
  // kernel / (in^T kernel out), without a gradient for the vectors.
  Array normalized(const Array& kernel) const;
};

// Calls a layer that has a field `kernel` (..., out), such as Linear or Conv, with its kernel divided by an estimate of
// the largest singular value. A call in training first improves the estimate, so it is not const; with inference = true
// the estimate stays as it is. Miyato et al., "Spectral normalization for generative adversarial networks" (2018).
template <class Layer>
struct SpectralNorm {
  Layer layer;
  PowerIteration power;
  bool inference = false;

  static SpectralNorm init(const Key& key, Layer layer, const SpectralNormOptions& options = {}) {
    PowerIteration power = PowerIteration::init(key, layer.kernel, options);
    return {.layer = std::move(layer), .power = std::move(power)};
  }
  template <class... Args>
  requires std::invocable<const Layer&, const Args&...> Array operator()(const Args&... args) {
    const ModuleScope scope(*this);
    PowerIteration next = power;
    if (!inference) next.step(layer.kernel);
    Layer normalized = layer;
    normalized.kernel.value = next.normalized(layer.kernel);
    const Array result = normalized(args...);
    power = std::move(next);
    return result;
  }
};

}  // namespace tessera::nn
