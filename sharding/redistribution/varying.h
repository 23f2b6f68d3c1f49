// Values inside shard_map: arrays that differ along its manual axes.
#pragma once

#include "sharding/array/array_impl.h"
#include "sharding/placement/type.h"

namespace tessera::detail {

// The same tensors under another type that says the same of each device: the blocks of a sharded array as a value that
// varies, or the other way around.
ArrayPtr read_as(const ArrayPtr& a, const Type* to);

// `a` as a value that may vary along `axes` too: JAX's pvary. The backward pass sums the gradients over these axes.
ArrayPtr varied(const ArrayPtr& a, AxisSet axes, const Provenance& cause);

// The first device's value of `a`, which varies along `axes` but is declared to be equal there; between processes an
// all_reduce passes it on. Each device gets an equal share of the gradient.
ArrayPtr first_of(const ArrayPtr& a, AxisSet axes, const Provenance& cause);

// The type that a placement `to`, asked for inside shard_map, has there: a placement says nothing of the manual axes,
// so the value varies along them as `from` does. Error (varying_axis): a placement over a manual axis.
const Type* placed_inside(const Type* to, const Type* from, const char* verb);

// `x` as an operand in the running body, on its mesh. Errors, which begin with `verb`: an array on another mesh
// (device_mismatch); a captured array that is sharded or pending over manual axes, where it would have to vary
// (varying_axis).
ArrayPtr inside(const Array& x, const char* verb);

}  // namespace tessera::detail
