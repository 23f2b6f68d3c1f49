// expect: tessera: write a shape with braces: array(values, {3, 4}).
#include "sharding/array.h"

tessera::Array of(const std::vector<float>& values) { return tessera::array(values, 3, 4); }
