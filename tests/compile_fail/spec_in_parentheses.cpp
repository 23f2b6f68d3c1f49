// expect: tessera: a PartitionSpec has braces: P{"data", none}.
#include "sharding/placement.h"

const tessera::PartitionSpec spec("data", tessera::none);
