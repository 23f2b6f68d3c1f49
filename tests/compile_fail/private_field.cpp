// expect: tessera: a module must be an aggregate, with public fields and without constructors. Make it in a static init(), or give the class the hook visit_fields.
#include "tests/compile_fail/module.h"

class Model {
 public:
  Param kernel;

 private:
  int64_t heads_ = 1;
};

nn::Leaves walk(Model& tree) { return nn::leaves(tree); }
