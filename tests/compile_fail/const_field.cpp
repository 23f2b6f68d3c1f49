// expect: tessera: a module has no const field and no reference, since it is assigned to; leave out the const, and hold values.
#include "tests/compile_fail/module.h"

struct Model {
  Param kernel;
  const int64_t heads = 8;
};

nn::Leaves walk(Model& tree) { return nn::leaves(tree); }
