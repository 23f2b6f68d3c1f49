// expect: tessera: a mesh has a list of axes, also of one: make_mesh({{"data", 4}}).
#include "sharding/placement.h"

const tessera::Mesh mesh = tessera::make_mesh({"data", 4});
