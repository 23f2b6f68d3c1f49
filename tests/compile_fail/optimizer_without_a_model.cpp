// expect: tessera: an optimizer needs a model and a transform: Optimizer(model, transform).
#include "optim/optimizer.h"

void start() { tessera::optim::Optimizer(tessera::optim::adamw({.learning_rate = 0.1})); }
