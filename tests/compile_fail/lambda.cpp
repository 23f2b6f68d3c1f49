// expect: tessera: a module cannot have functions, which can be neither compared nor saved. Use an enum, or a std::variant of structs with operator().
#include "tests/compile_fail/module.h"

template <class Activation>
struct Model {
  Activation activation;
};
Model model{[](const Array& x) { return x; }};

nn::Leaves walk(decltype(model)& tree) { return nn::leaves(tree); }
