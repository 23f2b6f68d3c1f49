// expect: tessera: write a shape with braces: zeros({3, 4}).
#include "sharding/array.h"

const tessera::Array x = tessera::zeros(3, 4);
