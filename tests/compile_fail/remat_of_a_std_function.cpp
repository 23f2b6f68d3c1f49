// expect: tessera: remat of a function that captures. Captured arrays would get no gradient: make them arguments.
#include <functional>

#include "nn/transformations.h"

using namespace tessera;

Array run(const std::function<Array(const Array&)>& layer, const Array& x) { return nn::remat(layer)(x); }
