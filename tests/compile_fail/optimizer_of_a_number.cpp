// expect: tessera: an optimizer's transform needs init(params), and update(grads, state, params) that returns {updates, state}.
#include "optim/optimizer.h"

struct Line {
  tessera::nn::Param slope;
};

void start(const Line& line) { tessera::optim::Optimizer(line, 0.1); }
