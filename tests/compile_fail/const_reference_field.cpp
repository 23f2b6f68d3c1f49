// expect: tessera: a module has no const field and no reference, since it is assigned to; leave out the const, and hold values.
#include "nn/tree.h"

using namespace tessera;
using nn::Param;

struct Model {
  const Param& kernel;
  int64_t heads = 8;
};

nn::Leaves walk(Model& tree) { return nn::leaves(tree); }
