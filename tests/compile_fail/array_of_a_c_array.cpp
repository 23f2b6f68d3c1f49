// expect: tessera: array takes a list or a std::vector, and a shape; for another range give the type of its elements: array<float>(values, {3, 4}). Another type is astype's.
#include "sharding/array.h"

const float values[] = {1, 2};
const tessera::Array x = tessera::array(values, {2});
