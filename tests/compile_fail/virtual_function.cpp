// expect: tessera: a module has no virtual function; use a std::variant of structs.
#include "nn/tree.h"

using namespace tessera;
using nn::Param;

struct Model {
  Param kernel;
  virtual ~Model() = default;
};

nn::Leaves walk(Model& tree) { return nn::leaves(tree); }
