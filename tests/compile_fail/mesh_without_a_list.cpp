// expect: tessera: the axes of a mesh must be a list, even for one axis: make_mesh({{"data", 4}}).
#include "sharding/placement.h"

const tessera::Mesh mesh = tessera::make_mesh({"data", 4});
