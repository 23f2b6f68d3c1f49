// expect: tessera: the trees of combine must have the same type.
#include "tests/compile_fail/module.h"

struct Layer {
  Param kernel;
};
struct Other {
  Param kernel;
};

Layer combined(const Layer& layer, const Other& other) { return nn::combine(layer, other); }
