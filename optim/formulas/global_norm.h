// global_norm: the Euclidean norm of all arrays of a tree.
#pragma once

#include <source_location>
#include <vector>

#include "nn/tree/tree.h"
#include "sharding/array/array.h"
#include "sharding/base/caller.h"

namespace tessera::optim {

namespace detail {
Array global_norm(const std::vector<Array*>& arrays);
// Throws Error (missing_array) if there are arrays and all are absent.
void check_any_given(const std::vector<Array*>& arrays);
}  // namespace detail

// Computes optax.global_norm: sqrt(sum of squares of all elements of all arrays), a replicated scalar. Every element
// counts once, also if several devices hold it. The sum is computed in at least float32; the result is float64 if one
// of the arrays is, otherwise float32. Absent arrays do not count; partial sums are reduced first. It takes at most one
// all-reduce of one number, over the mesh axes that shard any of the arrays. Inside value_and_grad it has a gradient.
// Errors
//   device_mismatch: arrays on several meshes
//   missing_array: all arrays are absent, as in gradients that were moved into optimizer.update(model,
//     std::move(grads))
template <class Tree>
Array global_norm(const Tree& tree, std::source_location where = std::source_location::current()) {
  const CallerScope caller(where);
  const std::vector<Array*> arrays = nn::bare_arrays(tree).arrays;
  detail::check_any_given(arrays);
  return detail::global_norm(arrays);
}

}  // namespace tessera::optim
