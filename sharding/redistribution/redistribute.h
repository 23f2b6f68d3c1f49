// redistribute: reshards an array on its mesh.
#pragma once

#include <source_location>

#include "sharding/array/array.h"

namespace tessera {

// Returns x with another sharding. Ledgers record its communication with the reason "explicit".
//
// Errors
//   those of NamedSharding
//   device_mismatch: x is on another mesh
//   varying_axis: inside shard_map, a sharding over a manual axis
Array redistribute(const Array& x, const NamedSharding& to,
                   std::source_location where = std::source_location::current());

}  // namespace tessera
