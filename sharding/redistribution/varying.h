// Values inside shard_map: arrays that differ along its manual axes.
#pragma once

#include "sharding/array/array_impl.h"
#include "sharding/placement/manual_axes.h"

namespace tessera::detail {

// The same tensors read as another type, whose devices hold the same: a block of a sharded array is a value that
// varies, and back.
ArrayPtr read_as(const ArrayPtr& a, const Type* to);

// `a` as a value that may differ along `axes` too: JAX's pvary. Backward, what differs is summed over them.
ArrayPtr varied(const ArrayPtr& a, AxisSet axes, const Cause& cause);

// `a`, which varies along `axes` and is said to be equal there, as the first device has it; each device gets its share
// of the gradient.
ArrayPtr first_of(const ArrayPtr& a, AxisSet axes);

// What a placement asked for inside shard_map is: it says nothing of the manual axes, along which a value varies or
// not. Error (vma): a placement over a manual axis.
const Type* placed_inside(const Type* to, const Type* from, const char* verb);

// `a` for this body: on its mesh. Errors, which begin with `verb`: an array on another mesh (device_mismatch), one that
// lies apart over manual axes without varying there, since it was captured (vma).
ArrayPtr inside(const Array& x, const char* verb);

}  // namespace tessera::detail
