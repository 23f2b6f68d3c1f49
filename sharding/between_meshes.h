// An array's blocks on one mesh made of its blocks on another over the same devices.
#pragma once

#include "sharding/pieces.h"

namespace tessera::detail {

// Nothing is pending in either type. The traffic of these pieces is not counted.
Pieces pieces_between_meshes(const Type* from, const Type* to);

// The most bytes that a device lacks of its new block.
int64_t bytes_to_receive(const Type* from, const Type* to);

}  // namespace tessera::detail
