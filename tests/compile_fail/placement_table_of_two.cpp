// expect: tessera: placement_table takes one tree, or named trees: placement_table(named("model", model, "optimizer", optimizer)).
#include "nn/placement.h"

struct Line {
  tessera::nn::Param slope;
};

void print(const Line& line, const Line& best) { tessera::nn::placement_table(line, best); }
