// expect: tessera: a module cannot have pointers or views. Use the value itself, std::optional, std::vector or std::variant.
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
