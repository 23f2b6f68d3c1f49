// Adam, AdamW and SGD in place: all blocks of all parameters in one kernel.
#pragma once

#include <cstdint>
#include <vector>

#include "nn/tree.h"

namespace tessera::optim::detail {

using Arrays = std::vector<Array*>;

struct FusedAdam {
  double b1, b2, eps;
  int64_t count;  // of this update, from 1
  double learning_rate;
  double weight_decay = 0;
  const std::vector<char>* decays = nullptr;  // whether each parameter does; null for all
};

struct FusedSgd {
  double learning_rate;
  double momentum = 0;
  bool nesterov = false;
};

// Whether the kernel computes this step: every moment is where its parameter is, in the usual element type. Moments
// that were never placed are placed with their parameter.
bool moments_lie_with(const Arrays& moments, const Arrays& params);

// The step, into the memory of params and moments; an array that someone else holds as well is replaced by a copy.
// Gradients are brought to their parameters before anything is written. `traces` are empty without momentum.
void fused_adam(const FusedAdam& step, const Arrays& params, const Arrays& grads, const Arrays& mu, const Arrays& nu);
void fused_sgd(const FusedSgd& step, const Arrays& params, const Arrays& grads, const Arrays& traces);

}  // namespace tessera::optim::detail
