// Param and Buffer: an array of a model, and what its dims are called.
#pragma once

#include "sharding/array/array.h"
#include "sharding/placement/layout.h"

namespace tessera::nn {

// A trainable array. `axes` names every dim: a logical axis ("embed"), none, or a mesh axis directly. It is used
// wherever an Array is: matmul(x, kernel), x + bias.
struct Param {
  Array value;
  Axes axes;
  Rules rules = {};  // tried before the layout's, for this parameter alone
  operator const Array&() const { return value; }
};

// An array that a module keeps but that is not trained: running statistics, counters, a cache. A call that changes it
// is a non-const one. It has no gradient, and optimizers leave it alone.
struct Buffer {
  Array value;
  Axes axes;
  operator const Array&() const { return value; }
};

}  // namespace tessera::nn
