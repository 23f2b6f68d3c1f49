// expect: tessera: a module cannot be a union. Use std::variant.
#include "tests/compile_fail/module.h"

union Either {
  int64_t count;
  double rate;
};
struct Model {
  Either either;
};

nn::Leaves walk(Model& tree) { return nn::leaves(tree); }
