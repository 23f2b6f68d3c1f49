// expect: tessera: a module must be an aggregate, with public fields and without constructors. Make it in a static init(), or give the class the hook visit_fields.
#include "optim/optimizer.h"

struct Line {
  explicit Line(tessera::nn::Param slope) : slope(slope) {}
  tessera::nn::Param slope;
};

void start(const Line& line) { tessera::optim::Optimizer(line, tessera::optim::adamw({.learning_rate = 0.1})); }
