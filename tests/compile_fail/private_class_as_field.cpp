// expect: tessera: a module is an aggregate: public fields and no constructor (make it in a static init()), or a class with the hook visit_fields.
#include "tests/compile_fail/module.h"

class Layer {
 public:
  Array operator()(const Array& x) const { return x; }

 private:
  Param kernel_;
};
struct Model {
  Layer layer;
};

nn::Leaves walk(Model& tree) { return nn::leaves(tree); }
