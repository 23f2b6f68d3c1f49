// expect: tessera: a module must be an aggregate, with public fields and without constructors. Make it in a static init(), or give the class the hook visit_fields.
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
