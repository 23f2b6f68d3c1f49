// Param: an array of a model, and what its dims are called.
#pragma once

#include "sharding/array.h"
#include "sharding/layout.h"

namespace tessera::nn {

// A trainable array. `axes` names every dim: a logical axis ("embed"), none, or a mesh axis directly. It is used
// wherever an Array is: matmul(x, kernel), x + bias.
struct Param {
  Array value;
  Axes axes;
  Rules rules = {};  // tried before the layout's, for this parameter alone
  operator const Array&() const { return value; }
};

}  // namespace tessera::nn
