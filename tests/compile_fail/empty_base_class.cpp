// expect: tessera: a module cannot have a base class. Make the base a field.
#include <optional>

#include "tests/compile_fail/module.h"

struct Base {};
struct Model : Base {
  std::optional<Param> kernel;
};

nn::Leaves walk(Model& tree) { return nn::leaves(tree); }
