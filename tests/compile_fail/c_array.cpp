// expect: tessera: a module cannot have C arrays. Use std::array or std::vector.
#include "tests/compile_fail/module.h"

struct Model {
  Param kernel;
  Param layers[2];
};

nn::Leaves walk(Model& tree) { return nn::leaves(tree); }
