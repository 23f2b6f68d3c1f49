// Values inside shard_map, which vary along its manual axes, and collectives over these axes.
#pragma once

#include <vector>

#include "sharding/redistribution/resharding.h"

namespace tessera::detail {

// Returns the same tensors under another type that describes the same data on each device: for example the blocks of a
// sharded array as a varying value, or the reverse.
ArrayPtr read_as(const ArrayPtr& a, const Type* to);

// Marks `a` as varying along `axes` too: JAX's pvary. The backward pass sums the gradients over these axes.
ArrayPtr varied(const ArrayPtr& a, AxisSet axes, const Provenance& cause);

// Returns the first device's value of `a`, which varies along `axes` but is declared to be equal there. Between
// processes an all_reduce distributes it. Each device gets an equal share of the gradient.
ArrayPtr first_of(const ArrayPtr& a, AxisSet axes, const Provenance& cause);

// Returns the type that an explicit sharding `to` has inside shard_map. A sharding does not describe manual axes, so
// the value varies along them as `from` does. Error (varying_axis): a sharding over a manual axis.
const Type* placed_inside(const Type* to, const Type* from, const char* verb);

// Returns `x` as an operand of the running body, on its mesh. The messages begin with `verb`.
// Errors
//   device_mismatch: an array on another mesh
//   varying_axis: a captured array that is sharded or unreduced over manual axes, where it would have to vary
ArrayPtr inside(const Array& x, const char* verb);

// Returns one row of the table as a collective of the devices along `axes`, numbered in this order. The array varies
// along these axes before or after it; the row's states specify how its tensors are interpreted.
Resharding resharding_over(Row row, const Type* from, const Type* to, const DimAxes& axes, int dim, int to_dim,
                           const Provenance& cause);
// Returns Row::varying_to_varying: device i gets the tensor of device senders[i], or zeros for -1.
Resharding permutation(const Type* type, const DimAxes& axes, std::vector<int> senders, const Provenance& cause);
// Returns the elementwise max or min of the devices' tensors (all_reduce_max, all_reduce_min); not recorded for
// gradients.
Tensors reduce_over(const Type* from, const Type* to, const DimAxes& axes, const Tensors& x, Collective collective,
                    const Provenance& cause);

}  // namespace tessera::detail
