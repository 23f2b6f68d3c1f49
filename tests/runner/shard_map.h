// Reference files of kind "shard_map": functions of one device's blocks, rewritten from Python under the same names.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "sharding/array/array.h"

namespace tessera::runner {

using ShardMapBody = std::vector<Array> (*)(const std::vector<Array>& blocks);
const std::map<std::string, ShardMapBody>& shard_map_bodies();

}  // namespace tessera::runner
