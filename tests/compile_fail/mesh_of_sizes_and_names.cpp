// expect: tessera: an axis has a name and a size, in this order: make_mesh({{"data", 4}}).
#include "sharding/placement.h"

const tessera::Mesh mesh = tessera::make_mesh({4, 2}, {"data", "model"});
