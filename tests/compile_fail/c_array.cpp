// expect: tessera: a module has no C array; use std::array or std::vector.
#include "tests/compile_fail/module.h"

struct Model {
  Param kernel;
  Param layers[2];
};

nn::Leaves walk(Model& tree) { return nn::leaves(tree); }
