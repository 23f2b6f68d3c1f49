// expect: tessera: to print an optimizer, use nn::tree_summary(optimizer).
#include <iostream>

#include "optim/optimizer.h"

struct Line {
  tessera::nn::Param slope;
};

void print(const Line& line) {
  std::cout << tessera::optim::Optimizer(line, tessera::optim::sgd({.learning_rate = 0.1}));
}
