// expect: tessera: split needs the number of keys: auto [k1, k2] = split<2>(key).
#include "sharding/random.h"

void init(tessera::Key key) { auto [k1, k2] = split(key); }
