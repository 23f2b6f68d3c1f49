// LoRA: low-rank changes to the linear layers of a model, of which only the changes are trained.
#pragma once

#include "nn/layers/linear.h"

namespace tessera::nn {

struct LoraOptions {
  int64_t rank = 8;
  double alpha = 16;          // the change is scaled by alpha / rank
  AxisName rank_name = none;  // the logical axis of the rank dim
};

// The layer with a low-rank change that is zero at first: a is uniform in +-1 / sqrt(in) (as in the paper's code), b is
// zeros. The layer and the model keep their types, and existing paths and checkpoints stay valid; the new arrays are at
// `<layer>.lora.a` and `.b`. Kernel and bias are frozen from here on (their gradient is zero): give the optimizer a
// filter for ".lora." so that it holds no state for them. If the layer is placed, the new arrays are placed, too: a
// like the kernel's in, b like its out. Hu et al., "LoRA: low-rank adaptation of large language models" (2021).
//   for (Block& block : model.layers) block.attention.q = nn::with_lora(key, block.attention.q, {.rank = 8});
// Errors (invalid_argument): a rank below 1, an alpha that is not finite, a layer that already has a change.
Linear with_lora(const Key& key, const Linear& linear, const LoraOptions& options = {});

// Adds the change to the kernel, kernel + scale a b, and removes it. A layer without a change is returned as it is.
Linear merge_lora(const Linear& linear);

}  // namespace tessera::nn
