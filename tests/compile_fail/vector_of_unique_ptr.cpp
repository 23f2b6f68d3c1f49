// expect: tessera: a module cannot have pointers or views. Use the value itself, std::optional, std::vector or std::variant.
#include <memory>

#include "nn/transformations.h"

struct Stack {
  std::vector<std::unique_ptr<tessera::nn::Param>> slopes;
};

tessera::Array loss(const Stack& stack) { return *stack.slopes[0]; }

void step(const Stack& stack) { tessera::nn::value_and_grad(loss)(stack); }
