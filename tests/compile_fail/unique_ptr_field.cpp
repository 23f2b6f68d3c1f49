// expect: tessera: a module cannot have pointers or views. Use the value itself, std::optional, std::vector or std::variant.
#include <memory>

#include "tests/compile_fail/module.h"

struct Model {
  Param kernel;
  std::unique_ptr<Param> bias;
};

nn::Leaves walk(Model& tree) { return nn::leaves(tree); }
