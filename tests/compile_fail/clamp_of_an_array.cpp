// expect: tessera: clamp is called clip, as in numpy: clip(x, min, max).
#include "sharding/operations.h"

tessera::Array clamped(const tessera::Array& x) { return clamp(x, 0, 1); }
