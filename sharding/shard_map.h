// shard_map: runs a function once per device, with explicit collectives.
#pragma once

#include "sharding/shard_map/collectives.h"
#include "sharding/shard_map/shard_map.h"
