// expect: tessera: a module is an aggregate: public fields and no constructor (make it in a static init()), or a class with the hook visit_fields.
#include "optim/optimizer.h"

struct Line {
  explicit Line(tessera::nn::Param slope) : slope(slope) {}
  tessera::nn::Param slope;
};

void start(const Line& line) { tessera::optim::Optimizer(line, tessera::optim::adamw({.learning_rate = 0.1})); }
