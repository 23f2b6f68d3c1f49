// Linear: x kernel + bias, with an optional low-rank change of the kernel.
#pragma once

#include <optional>

#include "nn/layers/dtype_policy.h"
#include "nn/layers/init.h"
#include "nn/tree/param.h"
#include "sharding/operations/reduce/reductions.h"
#include "sharding/operations/shape/creation.h"

namespace tessera::nn {

// flax.linen.Dense's defaults.
struct LinearOptions {
  bool bias = true;
  Initializer kernel_init = init::lecun_normal();
  Initializer bias_init = init::zeros();
  DTypePolicy dtypes = {};
};

// A change of a kernel by the product of two thin matrices: x kernel + scale (x a) b. Made by nn::with_lora
// (nn/layers/lora.h).
struct LowRank {
  Param a;  // (in, rank)
  Param b;  // (rank, out), zeros at first
  double scale = 1;
};

// (..., in) -> (..., out). With a low-rank change, kernel and bias are frozen: their gradient is zero. Error
// (shape_mismatch): the last dim of x is not `in`.
struct Linear {
  Param kernel;               // (in, out)
  std::optional<Param> bias;  // (out), zeros at first
  std::optional<LowRank> lora = std::nullopt;
  DTypePolicy dtypes = {};

  static Linear init(const Key& key, const Axis& in, const Axis& out, const LinearOptions& options = {});
  Array operator()(Operand x) const;
};

// Returns x unchanged: a placeholder where no layer is wanted.
struct Identity {
  Array operator()(Operand x) const { return x.array(); }
};

}  // namespace tessera::nn
