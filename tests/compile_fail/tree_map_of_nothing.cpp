// expect: tessera: the function must take one Array of each tree, and return an Array.
#include "nn/tree.h"

using tessera::Array;

struct Model {
  Array weight;
};

const Model halved = tessera::nn::tree_map([](const Array&) {}, Model{});
