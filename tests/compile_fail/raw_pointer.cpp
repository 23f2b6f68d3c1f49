// expect: tessera: a module cannot have pointers or views. Use the value itself, std::optional, std::vector or std::variant.
#include "tests/compile_fail/module.h"

struct Model {
  const Param* tied;
};

nn::Leaves walk(Model& tree) { return nn::leaves(tree); }
