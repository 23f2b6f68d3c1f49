// expect: tessera: item says which type it reads: x.item<float>().
#include "sharding/array.h"

float read(const tessera::Array& x) { return x.item(); }
