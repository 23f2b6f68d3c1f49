// redistribute: an array with another placement on its mesh.
#pragma once

#include <source_location>

#include "sharding/array/array.h"

namespace tessera {

// x with another placement. Ledgers record its communication with the reason "asked for".
// Errors: as NamedSharding's; device_mismatch, where x lies on another mesh; vma, inside shard_map over a manual axis.
Array redistribute(const Array& x, const NamedSharding& to,
                   std::source_location where = std::source_location::current());

}  // namespace tessera
