// expect: tessera: a rule maps a logical axis to the mesh axes that shard it, or to replicated: {"embed", "data"}, {"embed", replicated}.
#include "sharding/placement.h"

const tessera::Rules rules = {{"batch", "data"}, {"embed", tessera::none}};
