// Activation: an elementwise function by its name, as an option of layers and as a layer.
#pragma once

#include "nn/layers/dtype_policy.h"
#include "nn/tree/param.h"

namespace tessera::nn {

// (...) -> (...). A module cannot hold a function, so an enum names it: sequential(a, Activation{Activation::relu}).
// gelu is the tanh approximation, gelu_exact x Phi(x). (jax.nn's names and formulas:
// sharding/operations/elementwise/elementwise.h.)
struct Activation {
  enum Function { identity, relu, gelu, gelu_exact, silu, tanh, sigmoid, softplus, elu, leaky_relu, selu };
  Function function = relu;

  Array operator()(Operand x) const;
};

struct PReLUOptions {
  double slope = 0.25;  // Equinox's and PyTorch's; flax.linen.PReLU starts with 0.01
  DTypePolicy dtypes = {};
};

// (..., features) -> the same: x where x >= 0, slope x elsewhere, with one slope for all features or one for each. He
// et al., "Delving deep into rectifiers" (2015). Error (invalid_argument): an initial slope that is not finite.
struct PReLU {
  Param slope;  // () or (features)
  DTypePolicy dtypes = {};

  static PReLU init(const PReLUOptions& options = {});
  static PReLU init(const Axis& features, const PReLUOptions& options = {});
  Array operator()(Operand x) const;
};

}  // namespace tessera::nn
