// expect: tessera: a module has no const field and no reference, since it is assigned to; leave out the const, and hold values.
#include <vector>

#include "tests/compile_fail/module.h"

struct Layer {
  const Param kernel;
};
struct Model {
  std::vector<Layer> layers;
  Layer last;
};

nn::Leaves walk(Model& tree) { return nn::leaves(tree); }
