// expect: tessera: value_and_grad returns a function. Call that with the model: value_and_grad(loss)(model, batch).
#include "nn/transformations.h"

struct Line {
  tessera::nn::Param slope;
};

tessera::Array loss(const Line& line) { return line.slope; }

void step(const Line& line) { tessera::nn::value_and_grad(loss, line); }
