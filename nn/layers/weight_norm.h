// WeightNorm and SpectralNorm: layers whose kernel is normalized by its columns or by its largest singular value.
#pragma once

#include <concepts>
#include <utility>

#include "nn/layers/module_scope.h"
#include "nn/tree/param.h"
#include "sharding/random/key.h"

namespace tessera::nn {

// Returns kernel / norm(kernel) * length, with the norm over all dimensions except the last. A zero column gives NaN,
// as in Equinox.
Array with_length(const Array& kernel, const Array& length);
// Returns the norm of each column of a kernel (..., out), as a Param (out) with the name of the kernel's last
// dimension.
Param column_norms(const Param& kernel);

// Calls a layer with the kernel g v / |v|: g is `length`, v the layer's own kernel, |v| the norm of v for each output.
// The layer must have a field `kernel` (..., out), such as Linear or Conv. Initially g = |v|, so the layer computes the
// same result as before; init computes the complete kernel once for it. Salimans and Kingma, "Weight normalization"
// (2016).
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

// Defaults of equinox.nn.SpectralNorm.
struct SpectralNormOptions {
  int64_t num_power_iterations = 1;  // iterations of the power method in each call
  double eps = 1e-12;                // lower bound of the norm by which a vector is divided
};

// The two vectors of the power method, for a kernel (..., out) reshaped to a matrix (in, out).
struct PowerIteration {
  Buffer in, out;  // vectors of norm 1
  int64_t iterations = 1;
  double eps = 1e-12;

  // Starts with random vectors and fifteen iterations, as Equinox and PyTorch do. Errors (invalid_argument):
  // num_power_iterations below 1, an eps below 0 or not finite.
  static PowerIteration init(const Key& key, const Param& kernel, const SpectralNormOptions& options);
  // Runs `iterations` more iterations, without a gradient for the kernel.
  void step(const Array& kernel);
  // Returns kernel / (in^T kernel out), without a gradient for the vectors.
  Array normalized(const Array& kernel) const;
};

// Calls a layer with its kernel divided by an estimate of the largest singular value. The layer must have a field
// `kernel` (..., out), such as Linear or Conv. A call in training first improves the estimate, so it is not const. With
// inference = true the estimate does not change. Miyato et al., "Spectral normalization for generative adversarial
// networks" (2018).
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
