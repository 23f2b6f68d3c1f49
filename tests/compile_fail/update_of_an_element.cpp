// expect: tessera: arrays do not change. Use x = x + v, or x = x.at({0}).add(v) for a part.
#include "sharding/array.h"

void add_to_first(tessera::Array& x) { x[0] += tessera::zeros({3}); }
