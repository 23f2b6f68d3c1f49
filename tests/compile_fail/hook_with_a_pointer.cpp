// expect: tessera: a module holds values, no pointers and no views; use the value itself, a std::optional, std::vector or std::variant.
#include "tests/compile_fail/module.h"

class Model {
 public:
  template <class Visit>
  void visit_fields(Visit&& visit) {
    visit("kernel", kernel_);
  }

 private:
  Param* kernel_ = nullptr;
};

nn::Leaves walk(Model& tree) { return nn::leaves(tree); }
