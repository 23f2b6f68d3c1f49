// step_between_meshes: a move to another mesh over the same devices, which get their blocks from those that hold them.
#pragma once

#include "sharding/redistribution/step.h"

namespace tessera::detail {

// The step from a placement on one mesh to one on another. Both meshes are over the same devices of the same processes.
Step step_between_meshes(const Type* from, const Type* to);

}  // namespace tessera::detail
