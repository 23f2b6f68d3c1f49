// Whether the devices divide the work of a plan, also where each process does all of its part at once.
#pragma once

#include "sharding/plan.h"

namespace tessera::detail {

inline bool is_divided(const Plan& plan) { return plan.mesh && plan.mesh->count(plan.slots) > 1; }

}  // namespace tessera::detail
