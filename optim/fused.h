// Adam and AdamW in place: all blocks of all parameters in one kernel.
#pragma once

#include "nn/tree.h"
#include "optim/transform.h"

namespace tessera::optim::detail {

struct FusedAdam {
  AdamStep adam;
  double learning_rate = 0;
  double weight_decay = 0;
  const Mask* mask = nullptr;
};

// Whether the kernel computes this step: no eps_root, and every moment where its parameter is. Moments that were never
// placed are placed with their parameter.
bool can_fuse(const FusedAdam& step, const nn::Leaves& params, const nn::Leaves& mu, const nn::Leaves& nu);

// The step, into the memory of params, mu and nu; an array that someone else holds as well is replaced by a copy.
void fused_adam(const FusedAdam& step, const nn::Leaves& params, const nn::Leaves& grads, const nn::Leaves& mu,
                const nn::Leaves& nu);

}  // namespace tessera::optim::detail
