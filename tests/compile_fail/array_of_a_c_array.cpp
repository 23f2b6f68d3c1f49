// expect: tessera: array takes a list or a std::vector, and a shape. For other ranges, give the element type: array<float>(values, {3, 4}). To convert the elements, use astype.
#include "sharding/array.h"

const float values[] = {1, 2};
const tessera::Array x = tessera::array(values, {2});
