// expect: tessera: a transform's update is pure, (grads, state, params) -> {updates, state}; optim::Optimizer(model, transform) has update(model, grads).
#include "optim/optimizer.h"

struct Line {
  tessera::nn::Param slope;
};

void step(Line& line, const Line& grads) { tessera::optim::adamw({.learning_rate = 0.1}).update(line, grads); }
