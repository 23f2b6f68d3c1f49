// shard_map: one device's program, with the collectives that it names.
#pragma once

#include "sharding/shard_map/collectives.h"
#include "sharding/shard_map/shard_map.h"
