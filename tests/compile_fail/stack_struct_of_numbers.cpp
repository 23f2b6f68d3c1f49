// expect: tessera: stack needs a struct of arrays only. For others, give the type of the batch: stack_as<Batch>.
#include "data/batches/stack.h"

struct Example {
  std::vector<float> pixels;
  int digit = 0;
};

auto batch = tessera::data::stack(std::vector<Example>{});
