// The planner: how an operation runs on operands of given types, worked out without looking at data.
#pragma once

#include <memory>

#include "sharding/propagation/plan.h"

namespace tessera::detail {

// Operands whose placements agree do not move. Else the first rule that decides settles it (docs/sharding.md):
//   1. no mesh axis that divided the work is given up,
//   2. a dim of the output keeps its axis before a dim that is summed away,
//   3. activations move as few bytes as possible, pending sums of the result included (a weight yields),
//   4. weights move as few bytes as possible, then the first operand stays.
std::shared_ptr<const Plan> make_plan(const Problem& problem);

}  // namespace tessera::detail
