// expect: tessera: a module has no reference as a field; hold the value itself.
#include "nn/tree.h"

using namespace tessera;
using nn::Param;

struct Model {
  Param kernel;
  Array (&activation)(const Array&);
};

nn::Leaves walk(Model& tree) { return nn::leaves(tree); }
