// DTypePolicy: the element types of a layer's parameters, of its work and of its result.
#pragma once

#include <optional>

#include "sharding/array/array.h"
#include "sharding/operations/operand.h"

namespace tessera::nn {

// A layer that makes parameters has one as its field `dtypes`, its options one alike. What is not given is as in JAX:
// operands are promoted together, and the result has the type in which it was computed. (jmp.Policy's param_dtype,
// compute_dtype and output_dtype; Flax's param_dtype and dtype.)
//   nn::Linear::init(key, embed, hidden, {.dtypes = {.compute = bfloat16, .output = float32}})
// For a whole model at once, nn::cast (nn/transformations/cast.h) inside the loss function does the same as `compute`
// everywhere.
struct DTypePolicy {
  DType params = float32;                       // of what init makes
  std::optional<DType> compute = std::nullopt;  // inputs and parameters are cast to it
  std::optional<DType> output = std::nullopt;   // the result is cast to it

  // A new parameter in the type of parameters; of a recipe a recipe. Error (dtype_mismatch): a type that is not
  // floating, here and in the others.
  Array param(const Array& x) const;
  // An input or a parameter as the work takes it; integers stay.
  Array in(const Array& x) const;
  Array out(const Array& y) const;
};

}  // namespace tessera::nn
