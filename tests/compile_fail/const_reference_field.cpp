// expect: tessera: a module cannot have const fields or references, because it is assigned to. Remove the const, and store values.
#include "tests/compile_fail/module.h"

struct Model {
  const Param& kernel;
  int64_t heads = 8;
};

nn::Leaves walk(Model& tree) { return nn::leaves(tree); }
