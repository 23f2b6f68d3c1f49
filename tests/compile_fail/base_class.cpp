// expect: tessera: a module cannot have a base class. Make the base a field.
#include "tests/compile_fail/module.h"

struct Base {
  Param scale;
};
struct Model : Base {
  Param kernel;
};

nn::Leaves walk(Model& tree) { return nn::leaves(tree); }
