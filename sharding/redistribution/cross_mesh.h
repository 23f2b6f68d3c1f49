// From mesh to mesh over the same devices: every device gets its block from those that hold it.
#pragma once

#include "sharding/redistribution/step.h"

namespace tessera::detail {

// The step from a placement on one mesh to one on another. Both meshes are over the same devices of the same processes.
Step step_between_meshes(const Type* from, const Type* to);

}  // namespace tessera::detail
