// expect: tessera: an axis is its name and its size: make_mesh({{"data", 4}}).
#include "sharding/placement.h"

const tessera::Mesh mesh = tessera::make_mesh({{4, "data"}, {2, "model"}});
