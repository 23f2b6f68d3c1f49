// global_norm: the length of a whole tree of arrays, as one vector.
#pragma once

#include <source_location>
#include <vector>

#include "nn/tree/tree.h"
#include "sharding/array/array.h"
#include "sharding/base/caller.h"

namespace tessera::optim {

namespace detail {
Array global_norm(const std::vector<Array*>& arrays);
// Error (missing_array): there are arrays, and all are absent.
void check_any_given(const std::vector<Array*>& arrays);
}  // namespace detail

// optax.global_norm: sqrt(sum of squares of all elements of all arrays), a scalar, replicated. Every element counts
// once, however many devices hold it. The sum is computed in at least float32: the result is float32, or float64 if one
// of the arrays is. Absent arrays do not count; pending sums are summed first. At most one all-reduce of one number,
// over the mesh axes that shard any of the arrays. Inside value_and_grad it has a gradient. Errors: arrays on several
// meshes (device_mismatch); all arrays absent (missing_array), as in gradients that were given away,
// optimizer.update(model, std::move(grads)).
template <class Tree>
Array global_norm(const Tree& tree, std::source_location where = std::source_location::current()) {
  const CallerScope caller(where);
  const std::vector<Array*> arrays = nn::bare_arrays(tree).arrays;
  detail::check_any_given(arrays);
  return detail::global_norm(arrays);
}

}  // namespace tessera::optim
