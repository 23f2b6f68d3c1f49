// expect: tessera: a module has no base class; make the base a field.
#include <optional>

#include "tests/compile_fail/module.h"

struct Base {};
struct Model : Base {
  std::optional<Param> kernel;
};

nn::Leaves walk(Model& tree) { return nn::leaves(tree); }
