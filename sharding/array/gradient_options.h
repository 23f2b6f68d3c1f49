// GradientOptions: how gradients are computed, reduced and kept.
#pragma once

#include <optional>

#include "sharding/placement/dtype.h"

namespace tessera {

// Options of nn::value_and_grad and of a Tape.
struct GradientOptions {
  // A gathered weight is freed after its use, and gathered again if the backward pass reads it: no device ever holds
  // the whole model. If false, weights are gathered once a step and kept until the step ends.
  bool borrow_gathers = true;
  // If false, gradients stay pending sums over the mesh axes along which the work differs, and nothing is communicated
  // for them: the sums of several micro-batches can be reduced once, and an optimizer can reduce-scatter them to its
  // own placement.
  bool reduce = true;
  // The element type in which gradients of parameters cross the devices; by default the parameter's own.
  std::optional<DType> reduction = {};
  // The gradients are recorded, so that an enclosing tape differentiates them as well: second derivatives. Each
  // parameter's gradient is then reduced on its own, whatever `reduce` and `reduction` say, and operations with a
  // handmade gradient may refuse (no_gradient). If false, gradients are constants to other tapes.
  bool differentiable = false;
};

}  // namespace tessera
