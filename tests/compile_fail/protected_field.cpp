// expect: tessera: a module is an aggregate: public fields and no constructor (make it in a static init()), or a class with the hook visit_fields.
#include "tests/compile_fail/module.h"

struct Model {
  Param kernel;

 protected:
  Param hidden;
};

nn::Leaves walk(Model& tree) { return nn::leaves(tree); }
