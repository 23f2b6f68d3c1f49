// expect: tessera: a module is no union; use std::variant.
#include "nn/tree.h"

using namespace tessera;
using nn::Param;

union Either {
  int64_t count;
  double rate;
};
struct Model {
  Either either;
};

nn::Leaves walk(Model& tree) { return nn::leaves(tree); }
