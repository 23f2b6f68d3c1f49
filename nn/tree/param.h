// Param and Buffer: an array of a model with the names of its dims.
#pragma once

#include "sharding/array/array.h"
#include "sharding/placement/mesh_rules.h"

namespace tessera::nn {

// A trainable array. `axes` names every dim: by a logical axis ("embed"), none, or a mesh axis directly. A Param can be
// used like an Array: matmul(x, kernel), x + bias.
struct Param {
  Array value;
  Axes axes;
  Rules rules = {};  // tried before the mesh rules', for this parameter alone
  operator const Array&() const { return value; }
};

// An array that a module keeps but does not train: running statistics, counters, a cache. A call that changes it is a
// non-const one. Buffers have no gradient, and optimizers leave them alone.
struct Buffer {
  Array value;
  Axes axes;
  operator const Array&() const { return value; }
};

}  // namespace tessera::nn
