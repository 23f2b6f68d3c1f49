// Linear, x kernel + bias, and with_lora, which adds a trained LoRA adapter to its frozen kernel.
#pragma once

#include <optional>

#include "nn/layers/init.h"
#include "nn/tree/param.h"
#include "sharding/operations/reduce/reductions.h"
#include "sharding/operations/shape/creation.h"

namespace tessera::nn {

// Defaults of flax.linen.Dense.
struct LinearOptions {
  bool bias = true;
  Initializer kernel_init = init::lecun_normal();
  Initializer bias_init = init::zeros();
  DTypePolicy dtypes = {};
};

// LoRA adapter of a kernel, the product of two thin matrices: x kernel + scale (x a) b. Made by with_lora.
struct LowRank {
  Param a;  // (in, rank)
  Param b;  // (rank, out), initially zeros
  double scale = 1;
};

// Computes x kernel + bias: (..., in) -> (..., out). With a LoRA adapter, kernel and bias are frozen: their gradient is
// zero. Error (shape_mismatch): the last dimension of x is not `in`.
struct Linear {
  Param kernel;               // (in, out)
  std::optional<Param> bias;  // (out), initially zeros
  std::optional<LowRank> lora = std::nullopt;
  DTypePolicy dtypes = {};

  static Linear init(const Key& key, const Axis& in, const Axis& out, const LinearOptions& options = {});
  Array operator()(Operand x) const;
};

// Returns x unchanged: a placeholder for an omitted layer.
struct Identity {
  Array operator()(Operand x) const { return x.array(); }
};

struct LoraOptions {
  int64_t rank = 8;
  double alpha = 16;          // the adapter is scaled by alpha / rank
  AxisName rank_name = none;  // logical axis of the rank dimension
};

// Returns the layer with a LoRA adapter that is initially zero: a is uniform in +-1 / sqrt(in) (as in the paper's
// code), b is zeros. Hu et al., "LoRA: low-rank adaptation of large language models" (2021).
//   uint32_t i = 0;
//   for (Block& block : model.layers)
//     block.attention.q = nn::with_lora(fold_in(key, i++), block.attention.q, {.rank = 8});
// The layer and the model keep their types, and existing paths and checkpoints stay valid. The new arrays are
// `<layer>.lora.a` and `.b`. If the layer is placed, they are placed too: dimension `in` of a and `out` of b are
// sharded as in the kernel. Kernel and bias are frozen (their gradient is zero): give the optimizer a filter
// for ".lora." so that it stores no state for them.
// Errors (invalid_argument): a rank below 1, an alpha that is not finite, or a layer that already has an adapter.
Linear with_lora(const Key& key, const Linear& linear, const LoraOptions& options = {});

// Adds the adapter to the kernel, kernel + scale a b, and removes it. Returns a layer without an adapter unchanged.
Linear merge_lora(const Linear& linear);

}  // namespace tessera::nn
