// expect: tessera: a module has no C array; use std::array or std::vector.
#include "nn/tree.h"

using namespace tessera;
using nn::Param;

struct Model {
  float scale[1000];
};

nn::Leaves walk(Model& tree) { return nn::leaves(tree); }
