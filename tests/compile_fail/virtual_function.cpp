// expect: tessera: a module cannot have virtual functions. Use a std::variant of structs.
#include "tests/compile_fail/module.h"

struct Model {
  Param kernel;
  virtual ~Model() = default;
};

nn::Leaves walk(Model& tree) { return nn::leaves(tree); }
