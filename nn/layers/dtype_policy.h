// DTypePolicy: the element types of a layer's parameters, of its computation and of its result.
#pragma once

#include <optional>

#include "sharding/array/array.h"
#include "sharding/operations/operand.h"

namespace tessera::nn {

// A layer that makes parameters has a DTypePolicy as its field `dtypes`, and so have its options. What is not given
// follows JAX: operands are promoted to a common type, and the result has the type in which it was computed.
// (jmp.Policy's param_dtype, compute_dtype and output_dtype; Flax's param_dtype and dtype.)
//   nn::Linear::init(key, embed, hidden, {.dtypes = {.compute = bfloat16, .output = float32}})
// For a whole model at once, nn::cast (nn/transformations/cast.h) inside the loss function has the effect of `compute`.
struct DTypePolicy {
  DType params = float32;                       // of the parameters that init makes
  std::optional<DType> compute = std::nullopt;  // inputs and parameters are cast to it
  std::optional<DType> output = std::nullopt;   // the result is cast to it

  // Casts a new parameter to `params`; a recipe stays a recipe. Error (dtype_mismatch), here and below: the given type
  // is not floating.
  Array param(const Array& x) const;
  // Casts an input or a parameter to `compute`, and below a result to `output`; integers stay.
  Array in(const Array& x) const;
  Array out(const Array& y) const;
};

}  // namespace tessera::nn
