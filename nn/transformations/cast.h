// cast: a model in another element type, for mixed precision.
#pragma once

#include "nn/tree/filter.h"
#include "nn/tree/tree.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/reduce/reductions.h"

namespace tessera::nn {

// Returns a copy of the tree with its floating arrays cast to this element type; other arrays are unchanged. Called
// inside a loss function, it gives mixed precision: parameters, gradients and the optimizer stay float32, and the
// computation uses bfloat16. Sharded weights are cast before they are gathered (jmp's policy.cast_to_compute). Cast
// floating inputs as well, nn::cast(batch, bfloat16), because a float32 operand makes a float32 result.
//   Array loss(const Model& model, const Batch& batch) {
//     return cross_entropy(astype(nn::cast(model, bfloat16)(batch.inputs), float32), batch.targets);
//   }
// With a filter, only the arrays that it selects are cast: nn::cast(model, bfloat16, !nn::is_buffer) does not cast
// running statistics. If a call on such a copy changes them, nn::copy_buffers copies them back to the model.
// Error (dtype_mismatch): a type that is not floating.
template <class Tree>
Tree cast(const Tree& tree, DType dtype, const Filter& which = {}) {
  if (!is_floating(dtype))
    fail(ErrorKind::dtype_mismatch, "cast",
         std::string(name_of(dtype)) + " given, expected a floating type: a model of integers cannot be trained.");
  Tree result = tree;
  for (const Leaf& leaf : leaves(result))
    if (is_inexact_array(leaf) && which(leaf)) *leaf.value = astype(*leaf.value, dtype);
  return result;
}

}  // namespace tessera::nn
