// ManualAxes: the mesh axes over which the body of a shard_map runs once per device.
#pragma once

#include "sharding/placement/mesh_impl.h"

namespace tessera::detail {

// The manual axes of the innermost shard_map whose body runs; `mesh` is null outside of one.
struct ManualAxes {
  const MeshImpl* mesh = nullptr;
  AxisSet axes = 0;
};

// This thread's; a ScopedValue sets them.
inline ManualAxes& manual_axes() {
  thread_local ManualAxes innermost;
  return innermost;
}

}  // namespace tessera::detail
