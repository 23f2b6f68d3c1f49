// expect: tessera: a module cannot have C arrays. Use std::array or std::vector.
#include "tests/compile_fail/module.h"

struct Model {
  float scale[1];
  Param kernel;
};

nn::Leaves walk(Model& tree) { return nn::leaves(tree); }
