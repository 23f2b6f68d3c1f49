// Values inside shard_map: the mesh axes that are manual there, and arrays that differ along them.
#pragma once

#include "sharding/array_impl.h"

namespace tessera::detail {

// The axes over which the body of the innermost shard_map runs once per device; no mesh outside of one.
struct ManualAxes {
  const MeshImpl* mesh = nullptr;
  Mask axes = 0;
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

// The same tensors read as another type, whose devices hold the same: a block of a sharded array is a value that
// varies, and back.
ArrayPtr read_as(const ArrayPtr& a, const Type* to);

// `a` as a value that may differ along `axes` too: JAX's pvary. Backward, what differs is summed over them.
ArrayPtr varied(const ArrayPtr& a, Mask axes, const Cause& cause);

// `a`, which varies along `axes` and is said to be equal there, as the first device has it; each device gets its share
// of the gradient.
ArrayPtr first_of(const ArrayPtr& a, Mask axes);

// What a placement asked for inside shard_map is: it says nothing of the manual axes, along which a value varies or
// not. Error (vma): a placement over a manual axis.
const Type* placed_inside(const Type* to, const Type* from, const char* verb);

// `a` for this body: on its mesh. Errors, which begin with `verb`: an array on another mesh (device_mismatch), one that
// lies apart over manual axes without varying there, since it was captured (vma).
ArrayPtr inside(const Array& x, const char* verb);

}  // namespace tessera::detail
