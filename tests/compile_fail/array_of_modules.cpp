// expect: tessera: a module cannot have a std::array of modules. Use std::vector.
#include <array>

#include "tests/compile_fail/module.h"

struct Layer {
  Param kernel;
};
struct Model {
  std::array<Layer, 3> layers;
};

nn::Leaves walk(Model& tree) { return nn::leaves(tree); }
