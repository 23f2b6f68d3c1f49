// expect: tessera: a transform's update takes (grads, state, params) and returns {updates, state}. To update a model, make an optim::Optimizer(model, transform) and call update(model, grads).
#include "optim/optimizer.h"

struct Line {
  tessera::nn::Param slope;
};

void step(Line& line, const Line& grads) { tessera::optim::adamw({.learning_rate = 0.1}).update(line, grads); }
