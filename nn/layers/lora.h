// LoRA: low-rank changes of the linear layers of a model, which alone are trained.
#pragma once

#include "nn/layers/linear.h"

namespace tessera::nn {

struct LoraOptions {
  int64_t rank = 8;
  double alpha = 16;          // the change counts alpha / rank times
  AxisName rank_name = none;  // what rules call the dim of the rank
};

// The layer with a change that is zero at first: a is drawn uniform in +-1 / sqrt(in) (the paper's code), b is zeros.
// The layer keeps its type, so a model keeps its own, and paths and checkpoints of what it had stay as they are; the
// new arrays are at `<layer>.lora.a` and `.b`. Kernel and bias are constants from here on (gradient zero): give the
// optimizer a filter for ".lora." so that it holds nothing for the others. Placed layers get theirs placed along: a as
// the kernel's in, b as its out. Hu et al., "LoRA: low-rank adaptation of large language models" (2021).
//   for (Block& block : model.layers) block.attention.q = nn::with_lora(key, block.attention.q, {.rank = 8});
// Errors (bad_argument): a rank below 1, a layer that has a change already.
Linear with_lora(const Key& key, const Linear& linear, const LoraOptions& options = {});

// The same layer without a change of its own: kernel + scale a b. Of one without a change, itself.
Linear merge_lora(const Linear& linear);

}  // namespace tessera::nn
