// The planner: how an operation runs on operands of given types, worked out without looking at data.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "sharding/propagation/plan.h"

namespace tessera::detail {

// The order in which placements that disagree are settled (docs/sharding.md: where nothing disagrees, nothing moves):
//   1. no mesh axis that divided the work is given up,
//   2. a dim of the output keeps its axis before a dim that is summed away,
//   3. activations move as few bytes as possible, pending sums of the result included (a weight yields),
//   4. then weights, then the order of the operands.
std::shared_ptr<const Plan> make_plan(const Problem& problem);

}  // namespace tessera::detail
