// expect: tessera: a loss function must return an Array or a WeightedSum, or a std::pair of either and aux.
#include "nn/transformations.h"

struct Line {
  tessera::nn::Param slope;
};

void step(const Line& line) {
  tessera::nn::value_and_grad([](const Line&) { return 1.0f; })(line);
}
