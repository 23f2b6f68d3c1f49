// ManualAxes: the mesh axes over which the body of a shard_map runs once per device.
#pragma once

#include "sharding/placement/mesh_impl.h"

namespace tessera::detail {

// The manual axes of the innermost shard_map whose body runs in this thread; `mesh` is null outside of one.
struct ManualAxes {
  const MeshImpl* mesh = nullptr;
  AxisSet axes = 0;
};
const ManualAxes& manual_axes();

// While the scope lives, these axes are manual in its thread.
class ManualScope {
 public:
  explicit ManualScope(const ManualAxes& axes);
  ~ManualScope();
  ManualScope(const ManualScope&) = delete;
  ManualScope& operator=(const ManualScope&) = delete;

 private:
  ManualAxes outer_;
};

}  // namespace tessera::detail
