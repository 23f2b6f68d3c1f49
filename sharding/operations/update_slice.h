// dynamic_update_slice: an array with one box of it replaced.
#pragma once

#include "sharding/operations/operand.h"

namespace tessera {

// x with the elements from `start` on replaced by `update`; an update that would end outside begins earlier.
Array dynamic_update_slice(Operand x, const Array& update, Shape start);

}  // namespace tessera
