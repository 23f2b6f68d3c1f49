// expect: tessera: a loss function under accumulate_gradients returns an Array, without aux.
#include "nn/accumulate_gradients.h"

using namespace tessera;

struct Line {
  nn::Param slope;
};

void step(const Line& line, const Array& x) {
  nn::accumulate_gradients([](const Line&, const Array& y) { return std::pair(y, 1); }, 2)(line, x);
}
