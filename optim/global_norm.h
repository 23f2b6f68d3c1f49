// global_norm: the length of a whole tree of arrays, as one vector.
#pragma once

#include <source_location>
#include <vector>

#include "nn/tree/tree.h"
#include "sharding/array/array.h"
#include "sharding/diagnostics/caller.h"

namespace tessera::optim {

namespace detail {
Array global_norm(const std::vector<Array*>& arrays);
}

// optax.global_norm: sqrt(sum of squares of all elements of all arrays), a scalar, replicated. Every element counts
// once, however many devices hold it. The sum is computed in at least float32: the result is float32, or float64 if one
// of the arrays is. Absent arrays do not count; pending sums are summed first. At most one all-reduce of one number,
// over the mesh axes that shard any of the arrays. Error (device_mismatch): arrays on several meshes.
template <class Tree>
Array global_norm(const Tree& tree, std::source_location where = std::source_location::current()) {
  const CallerScope caller(where);
  return detail::global_norm(nn::bare_arrays(tree).arrays);
}

}  // namespace tessera::optim
