// expect: tessera: stack_as<Batch>: each field of the batch needs a field of the same name in the record.
#include "data/batches/stack.h"

struct Example {
  std::vector<float> pixels;
};
struct Batch {
  tessera::NamedArray pixel{"batch", "pixel"};
};

auto batch = tessera::data::stack_as<Batch>(std::vector<Example>{});
