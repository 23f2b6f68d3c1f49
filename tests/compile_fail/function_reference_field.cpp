// expect: tessera: a module has no reference as a field; hold the value itself.
#include "tests/compile_fail/module.h"

struct Model {
  Param kernel;
  Array (&activation)(const Array&);
};

nn::Leaves walk(Model& tree) { return nn::leaves(tree); }
