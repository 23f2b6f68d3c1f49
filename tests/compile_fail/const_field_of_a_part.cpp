// expect: tessera: a module cannot have const fields or references, because it is assigned to. Remove the const, and store values.
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
