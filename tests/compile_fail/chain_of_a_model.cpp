// expect: tessera: chain takes transforms: chain(clip_by_global_norm(1.0), adamw({.learning_rate = 3e-4})).
#include "optim/optimizer.h"

struct Line {
  tessera::nn::Param slope;
};

void start(const Line& line) { tessera::optim::chain(line, tessera::optim::adamw({.learning_rate = 0.1})); }
