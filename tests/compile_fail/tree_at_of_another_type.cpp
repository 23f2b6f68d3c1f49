// expect: tessera: tree_at replaces a part by a value of the same type, or by the result of a function of the part.
#include "tests/compile_fail/module.h"

struct Layer {
  Param kernel;
};
struct Model {
  Layer layer;
};

Model changed(const Model& model, const Array& x) { return nn::tree_at(&Model::layer, model, x); }
