// expect: tessera: a module must be an aggregate, with public fields and without constructors. Make it in a static init(), or give the class the hook visit_fields.
#include "tests/compile_fail/module.h"

struct Model {
  Param kernel;
  explicit Model(int64_t n) : kernel{zeros({n}), {"embed"}} {}
};

nn::Leaves walk(Model& tree) { return nn::leaves(tree); }
