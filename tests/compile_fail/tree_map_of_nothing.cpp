// expect: tessera: the function takes an Array of each tree and returns one.
#include "nn/tree.h"

using tessera::Array;

struct Model {
  Array weight;
};

const Model halved = tessera::nn::tree_map([](const Array&) {}, Model{});
