// expect: tessera: a module cannot have functions, which can be neither compared nor saved. Use an enum, or a std::variant of structs with operator().
#include "tests/compile_fail/module.h"

struct Model {
  Param kernel;
  Array (*activation)(const Array&);
};

nn::Leaves walk(Model& tree) { return nn::leaves(tree); }
