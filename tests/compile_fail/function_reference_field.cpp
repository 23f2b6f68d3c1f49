// expect: tessera: a module cannot have references as fields. Store the value itself.
#include "tests/compile_fail/module.h"

struct Model {
  Param kernel;
  Array (&activation)(const Array&);
};

nn::Leaves walk(Model& tree) { return nn::leaves(tree); }
