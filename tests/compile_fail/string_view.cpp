// expect: tessera: a module holds values, no pointers and no views; use the value itself, a std::optional, std::vector or std::variant.
#include <string_view>

#include "tests/compile_fail/module.h"

struct Model {
  Param kernel;
  std::string_view name;
};

nn::Leaves walk(Model& tree) { return nn::leaves(tree); }
