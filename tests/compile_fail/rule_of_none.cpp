// expect: tessera: a rule is a logical axis and the mesh axes that shard it, or replicated: {"embed", "data"}, {"embed", replicated}.
#include "sharding/placement.h"

const tessera::Rules rules = {{"batch", "data"}, {"embed", tessera::none}};
