// expect: tessera: a module holds no function, which can be neither compared nor saved; use an enum, or a std::variant of structs with operator().
#include <functional>

#include "tests/compile_fail/module.h"

struct Model {
  Param kernel;
  std::function<Array(const Array&)> activation;
};

nn::Leaves walk(Model& tree) { return nn::leaves(tree); }
