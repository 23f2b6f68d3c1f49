// expect: tessera: write a PartitionSpec with braces: P{"data", none}.
#include "sharding/placement.h"

const tessera::PartitionSpec spec("data", tessera::none);
