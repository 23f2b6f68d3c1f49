// cast: a model in another element type, for mixed precision.
#pragma once

#include "nn/tree.h"
#include "sharding/operations.h"

namespace tessera::nn {

// The tree with its floating arrays in this element type; the others stay. Inside a loss function it is mixed
// precision: parameters, their gradients and the optimizer stay float32, the work is done in bfloat16, and weights that
// are sharded are cast before they are gathered (jmp's policy.cast_to_compute). Floating inputs are cast as well,
// nn::cast(batch, bfloat16): a float32 operand makes a float32 result.
//   Array loss(const Model& model, const Batch& batch) {
//     return cross_entropy(astype(nn::cast(model, bfloat16)(batch.inputs), float32), batch.targets);
//   }
// Error (dtype_mismatch): a type that is not floating.
template <class Tree>
Tree cast(const Tree& tree, DType dtype) {
  if (!is_floating(dtype))
    fail(ErrorKind::dtype_mismatch, "cast",
         std::string(name_of(dtype)) + " given, expected a floating type: a model of integers learns nothing.");
  return tree_map([&](const auto&, const Array& x) { return is_floating(x.dtype()) ? astype(x, dtype) : x; }, tree);
}

}  // namespace tessera::nn
