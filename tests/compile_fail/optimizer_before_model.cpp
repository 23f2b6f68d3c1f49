// expect: tessera: the model must be the first argument: Optimizer(model, transform).
#include "optim/optimizer.h"

struct Line {
  tessera::nn::Param slope;
};

void start(const Line& line) { tessera::optim::Optimizer(tessera::optim::adamw({.learning_rate = 0.1}), line); }
