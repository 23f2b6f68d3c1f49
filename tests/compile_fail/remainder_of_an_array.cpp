// expect: tessera: remainder is an operator: x % y.
#include "sharding/operations.h"

tessera::Array low_byte(const tessera::Array& x) { return remainder(x, 256); }
