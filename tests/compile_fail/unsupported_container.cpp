// expect: tessera: a module is an aggregate: public fields and no constructor (make it in a static init()), or a class with the hook visit_fields.
#include <deque>

#include "tests/compile_fail/module.h"

struct Model {
  std::deque<Param> layers;
};

nn::Leaves walk(Model& tree) { return nn::leaves(tree); }
