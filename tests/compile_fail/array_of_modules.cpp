// expect: tessera: a module has no std::array of modules; use std::vector.
#include <array>

#include "nn/tree.h"

using namespace tessera;
using nn::Param;

struct Layer {
  Param kernel;
};
struct Model {
  std::array<Layer, 3> layers;
};

nn::Leaves walk(Model& tree) { return nn::leaves(tree); }
