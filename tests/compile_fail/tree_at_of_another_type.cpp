// expect: tessera: tree_at replaces a part by one of the same type, or by what a function makes of it.
#include "nn/tree.h"

using namespace tessera;
using nn::Param;

struct Layer {
  Param kernel;
};
struct Model {
  Layer layer;
};

Model changed(const Model& model, const Array& x) { return nn::tree_at(&Model::layer, model, x); }
