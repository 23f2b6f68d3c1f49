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
  int64_t iterations = 1;  // of the power method in each call
  double eps = 1e-12;      // below which a vector is not divided by its length
};

// The kernel (..., out) as a matrix (in, out), and the power method's two vectors.
struct PowerIteration {
  Buffer in, out;  // of length one
  int64_t iterations = 1;
  double eps = 1e-12;

  // From random vectors by fifteen iterations, as Equinox and PyTorch start. Errors (bad_argument):
  // iterations below 1, an eps below 0 or not finite.
  static PowerIteration init(const Key& key, const Param& kernel, const SpectralNormOptions& options);
  // Goes on by `iterations`, with the kernel as a constant.
  void step(const Array& kernel);
  // kernel / (in^T kernel out), the vectors as constants.
  Array normalized(const Array& kernel) const;
};

// A layer with a field `kernel` (..., out), Linear or Conv: what it computes with its kernel divided by an estimate of
// the largest singular value. A training call first improves the estimate, so it is no const call; with inference it
// stays as it is. Miyato et al., "Spectral normalization for generative adversarial networks" (2018).
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
