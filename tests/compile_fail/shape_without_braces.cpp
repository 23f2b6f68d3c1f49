// expect: tessera: a shape has braces: zeros({3, 4}).
#include "sharding/array.h"

const tessera::Array x = tessera::zeros(3, 4);
