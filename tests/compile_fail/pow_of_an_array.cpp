// expect: tessera: pow is called power, as in numpy: power(x, y).
#include "sharding/operations.h"

tessera::Array squared(const tessera::Array& x) { return pow(x, 2); }
