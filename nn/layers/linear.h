// Linear: x kernel + bias.
#pragma once

#include <optional>

#include "nn/init.h"
#include "nn/param.h"
#include "sharding/operations.h"

namespace tessera::nn {

// flax.linen.Dense's defaults.
struct LinearOptions {
  bool bias = true;
  Initializer kernel_init = init::lecun_normal();
};

// (..., in) -> (..., out).
struct Linear {
  Param kernel;               // (in, out)
  std::optional<Param> bias;  // (out), zeros at first

  static Linear init(const Key& key, const Axis& in, const Axis& out, const LinearOptions& options = {});
  Array operator()(Operand x) const;
};

}  // namespace tessera::nn
