// expect: tessera: remat of a function that captures. What it captures would get no gradient: make it an argument.
#include <functional>

#include "nn/transformations.h"

using namespace tessera;

Array run(const std::function<Array(const Array&)>& layer, const Array& x) { return nn::remat(layer)(x); }
