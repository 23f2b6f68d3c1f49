// GradientOptions: how gradients are computed, reduced and kept.
#pragma once

#include <optional>

#include "sharding/placement/dtype.h"

namespace tessera {

// How gradients are computed.
struct GradientOptions {
  // A weight that is gathered at its use is freed after it, and gathered again where the backward pass reads it: the
  // model never lies whole on a device. Without it weights are gathered once a step, and stay until the step ends.
  bool borrow_gathers = true;
  // Without it, gradients stay pending sums over the mesh axes along which the work differs, and nothing is
  // communicated for them: sums over micro-batches are reduced once, and an optimizer can reduce-scatter them to its
  // own placement.
  bool reduce = true;
  // The element type in which gradients of parameters cross the devices; by default the parameter's own.
  std::optional<DType> reduction = {};
  // The gradients are recorded, so that a tape around this one differentiates them as well: second derivatives. Without
  // it they are values, constants to other tapes. Each parameter's is then reduced on its own, whatever `reduce` and
  // `reduction` say, and operations whose gradient is made by hand may refuse (no_gradient).
  bool differentiable = false;
};

}  // namespace tessera
