// expect: tessera: a struct that stack takes holds arrays only; name the batch: stack_as<Batch>.
#include "data/batches/stack.h"

struct Example {
  std::vector<float> pixels;
  int digit = 0;
};

auto batch = tessera::data::stack(std::vector<Example>{});
