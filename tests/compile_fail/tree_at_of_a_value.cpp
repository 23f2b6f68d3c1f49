// expect: tessera: the function of tree_at must return a reference into the tree: [](auto& m) -> auto& { return m.head; }.
#include "tests/compile_fail/module.h"

struct Model {
  Param kernel;
};

Model changed(const Model& model, const Array& x) {
  return nn::tree_at([](auto& m) { return m.kernel; }, model, x);
}
