// expect: tessera: an optimizer needs a model and a transform: Optimizer(model, transform).
#include "optim/optimizer.h"

struct Line {
  tessera::nn::Param slope;
};

void start(const Line& line) { auto optimizer = tessera::optim::Optimizer(line); }
