// expect: tessera: chain takes transforms: chain(clip_by_global_norm(1.0), adamw({.learning_rate = 3e-4})).
#include "optim/optimizer.h"

void start() { tessera::optim::chain(1.0, tessera::optim::adamw({.learning_rate = 0.1})); }
