// expect: tessera: a module has no base class; make the base a field.
#include "tests/compile_fail/module.h"

struct Base {
  Param scale;
};
struct Model : Base {
  Param kernel;
};

nn::Leaves walk(Model& tree) { return nn::leaves(tree); }
