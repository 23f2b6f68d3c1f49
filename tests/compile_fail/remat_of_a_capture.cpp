// expect: tessera: the function under remat has captures, and captured arrays would get no gradient. Pass them as arguments.
#include "nn/transformations.h"

using namespace tessera;

Array run(const nn::Param& kernel, const Array& x) {
  return nn::remat([&](const Array& y) { return kernel.value.is_absent() ? x : y; })(x);
}
