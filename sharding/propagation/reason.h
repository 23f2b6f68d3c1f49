// Why an operation's operands have to move, in words.
#pragma once

#include <vector>

#include "sharding/propagation/plan.h"

namespace tessera::detail {

// What the planner has decided about an operation.
struct PlannerChoice {
  const MeshImpl* mesh;
  const Problem& problem;
  const BoundRule& rule;
  const std::vector<const Type*>& brought_to;  // the type to which each operand is converted
  AxisSet vary;                                // the mesh axes along which the work differs
  AxisSet reduced_inside;                      // those that the operation itself reduces over
};

// One clause for each operand that moves, then any other cause of communication; null if nothing is communicated:
//   lhs float32[8@data,4] and rhs float32[4@data,2] disagree: data cuts dim 0 of lhs and dim 0 of rhs, so rhs is
//   brought to float32[4,2]; the work differs along data
Text reason_of(const PlannerChoice& choice);

}  // namespace tessera::detail
