// Adam, AdamW and SGD in place: all blocks of all parameters in one kernel.
#pragma once

#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "optim/transform.h"

namespace tessera::optim::detail {

struct FusedAdam {
  double b1, b2, eps;
  int64_t count;  // of this update, from 1
  double learning_rate;
  double weight_decay = 0;
  std::shared_ptr<const std::vector<bool>> decays = nullptr;  // whether each parameter decays; null: all do
};

struct FusedSgd {
  double learning_rate;
  double momentum = 0;
  bool nesterov = false;
};

// One call of a kernel. A parameter whose gradient is absent is not changed.
struct FusedCall {
  std::variant<FusedAdam, FusedSgd> step;
  Arrays params, grads;
  Arrays first, second;  // mu and nu, or the trace, where the step has them
};

// Whether the kernel can compute this step: each moment of a parameter with a gradient is placed as the parameter, in
// the usual element type. Moments that were never placed are placed like their parameter.
bool moments_lie_with(const Arrays& moments, const Arrays& params, const Arrays& grads);

// Computes the steps in the storage of params and moments; an array whose storage is shared is replaced by a copy. All
// gradients are brought to their parameters' placements before anything is written.
void run_fused(const std::vector<FusedCall>& calls);

}  // namespace tessera::optim::detail
