// expect: tessera: x[0] = v would change nothing, because x[0] is a new array. Use x = x.at({0}).set(v).
#include "sharding/array.h"

void clear_first(tessera::Array& x) { x[0] = tessera::zeros({3}); }
