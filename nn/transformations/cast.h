// cast: a model in another element type, for mixed precision.
#pragma once

#include "nn/tree/filter.h"
#include "nn/tree/tree.h"
#include "sharding/operations/elementwise.h"
#include "sharding/operations/reductions.h"

namespace tessera::nn {

// The tree with its floating arrays in this element type; the others stay. Inside a loss function it is mixed
// precision: parameters, their gradients and the optimizer stay float32, the work is done in bfloat16, and weights that
// are sharded are cast before they are gathered (jmp's policy.cast_to_compute). Floating inputs are cast as well,
// nn::cast(batch, bfloat16): a float32 operand makes a float32 result.
//   Array loss(const Model& model, const Batch& batch) {
//     return cross_entropy(astype(nn::cast(model, bfloat16)(batch.inputs), float32), batch.targets);
//   }
// With a filter only what it takes is cast: nn::cast(model, bfloat16, !nn::is_buffer) leaves running statistics as they
// are (and nn::copy_buffers brings those that a call on the copy has changed back to the model).
// Error (dtype_mismatch): a type that is not floating.
template <class Tree>
Tree cast(const Tree& tree, DType dtype, const Filter& which = {}) {
  if (!is_floating(dtype))
    fail(ErrorKind::dtype_mismatch, "cast",
         std::string(name_of(dtype)) + " given, expected a floating type: a model of integers learns nothing.");
  Tree result = tree;
  for (const Leaf& leaf : leaves(result))
    if (is_inexact_array(leaf) && which(leaf)) *leaf.value = astype(*leaf.value, dtype);
  return result;
}

}  // namespace tessera::nn
