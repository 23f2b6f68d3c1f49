// Param, Buffer and Leaf: an array of a model with the names of its dimensions and its path.
#pragma once

#include <string>
#include <vector>

#include "sharding/array/array.h"
#include "sharding/placement/mesh_rules.h"

namespace tessera::nn {

// Holds a trainable array. `axes` names every dimension: by a logical axis ("embed"), by `none`, or directly by a mesh
// axis. You can use a Param like an Array: matmul(x, kernel), x + bias.
struct Param {
  Array value;
  Axes axes;
  Rules rules = {};  // tried before the rules of the mesh rules, for this parameter only
  operator const Array&() const { return value; }
};

// Holds an array that a module keeps but does not train: running statistics, counters, a cache. A call that changes a
// Buffer needs a non-const module. Buffers have no gradient, and optimizers do not update them.
struct Buffer {
  Array value;
  Axes axes;
  operator const Array&() const { return value; }
};

// Type of the field that holds an array.
enum class Kind { array, named_array, param, buffer };

// One array of a tree. The pointers point into the tree and are valid as long as the tree is.
struct Leaf {
  std::string path;  // layers.2.mlp.up.kernel
  Array* value = nullptr;
  Kind kind = Kind::array;
  const Axes* axes = nullptr;    // null for a bare Array
  const Rules* rules = nullptr;  // Param::rules; null for other kinds
  bool is_param() const { return kind == Kind::param; }
  operator const Array&() const { return *value; }
};

// Arrays of a tree, in the order of its fields.
using Leaves = std::vector<Leaf>;

}  // namespace tessera::nn
