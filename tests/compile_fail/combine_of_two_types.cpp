// expect: tessera: combine takes trees of one type.
#include "nn/tree.h"

using namespace tessera;
using nn::Param;

struct Layer {
  Param kernel;
};
struct Other {
  Param kernel;
};

Layer combined(const Layer& layer, const Other& other) { return nn::combine(layer, other); }
