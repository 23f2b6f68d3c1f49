// expect: tessera: an optimizer's transform has init(params) and update(grads, state, params) -> {updates, state}.
#include "optim/optimizer.h"

struct Line {
  tessera::nn::Param slope;
};

void start(const Line& line) { tessera::optim::Optimizer(line, 0.1); }
