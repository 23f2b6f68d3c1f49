// expect: tessera: a module has no C array; use std::array or std::vector.
#include "tests/compile_fail/module.h"

struct Model {
  float scale[1];
  Param kernel;
};

nn::Leaves walk(Model& tree) { return nn::leaves(tree); }
