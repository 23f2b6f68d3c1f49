// expect: tessera: a module has no base class; make the base a field.
#include <optional>

#include "nn/tree.h"

using namespace tessera;
using nn::Param;

struct Base {};
struct Model : Base {
  std::optional<Param> kernel;
};

nn::Leaves walk(Model& tree) { return nn::leaves(tree); }
