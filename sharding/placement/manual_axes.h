// Manual axes: those of a mesh over which the body of a shard_map runs once per device.
#pragma once

#include "sharding/placement/mesh_impl.h"

namespace tessera::detail {

// The axes over which the body of the innermost shard_map runs once per device; no mesh outside of one.
struct ManualAxes {
  const MeshImpl* mesh = nullptr;
  AxisSet axes = 0;
};
const ManualAxes& manual_axes();

// While it lives, the axes are manual in this thread.
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
