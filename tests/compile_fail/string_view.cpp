// expect: tessera: a module cannot have pointers or views. Use the value itself, std::optional, std::vector or std::variant.
#include <string_view>

#include "tests/compile_fail/module.h"

struct Model {
  Param kernel;
  std::string_view name;
};

nn::Leaves walk(Model& tree) { return nn::leaves(tree); }
