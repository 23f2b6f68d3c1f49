// Kind shard_map: a function of one device's blocks, whose Python body is written again in C++ under its name.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "sharding/array/array.h"

namespace tessera::runner {

using ShardMapBody = std::vector<Array> (*)(const std::vector<Array>& blocks);
const std::map<std::string, ShardMapBody>& shard_map_bodies();

}  // namespace tessera::runner
