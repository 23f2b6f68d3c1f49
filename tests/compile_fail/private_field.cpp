// expect: tessera: a module is an aggregate: public fields and no constructor (make it in a static init()), or a class with the hook visit_fields.
#include "tests/compile_fail/module.h"

class Model {
 public:
  Param kernel;

 private:
  int64_t heads_ = 1;
};

nn::Leaves walk(Model& tree) { return nn::leaves(tree); }
