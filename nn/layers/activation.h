// Elementwise layers: Activation, PReLU and Dropout.
#pragma once

#include <optional>

#include "nn/layers/init.h"
#include "nn/tree/param.h"
#include "sharding/operations/operand.h"
#include "sharding/random/key.h"

namespace tessera::nn {

// Applies an elementwise function: (...) -> (...). A module cannot hold a function, so an enum names it: sequential(a,
// Activation{Activation::relu}). gelu is the tanh approximation; gelu_exact is x Phi(x). Names and formulas are as in
// jax.nn (sharding/operations/elementwise/elementwise.h).
struct Activation {
  enum Function { identity, relu, gelu, gelu_exact, silu, tanh, sigmoid, softplus, elu, leaky_relu, selu };
  Function function = relu;

  Array operator()(Operand x) const;
};

struct PReLUOptions {
  double slope = 0.25;  // default of Equinox and PyTorch; flax.linen.PReLU starts with 0.01
  DTypePolicy dtypes = {};
};

// Applies a leaky ReLU with a trained slope, (..., features) -> the same: x where x >= 0, otherwise slope x. All
// features share one slope, or each has its own. He et al., "Delving deep into rectifiers" (2015). Error
// (invalid_argument): an initial slope that is not finite.
struct PReLU {
  Param slope;  // () or (features)
  DTypePolicy dtypes = {};

  static PReLU init(const PReLUOptions& options = {});
  static PReLU init(const Axis& features, const PReLUOptions& options = {});
  Array operator()(Operand x) const;
};

// Sets each element to zero with probability `rate`, and divides the others by 1 - rate: (...) -> (...). The same key
// gives bitwise the same zeros on every mesh, so pass a different key to each call (split, fold_in). With inference =
// true or rate 0, x is returned unchanged and no key is needed. The default rate equals Equinox's and PyTorch's.
// Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting" (2014).
//   x = dropout(x, key);
// Errors (invalid_argument): no key although one is needed, or a rate outside [0, 1].
struct Dropout {
  double rate = 0.5;
  bool inference = false;

  Array operator()(Operand x, const std::optional<Key>& key = std::nullopt) const;
  // Whether a call changes anything, and so needs a key.
  bool is_active() const { return !inference && rate != 0; }
};

}  // namespace tessera::nn
