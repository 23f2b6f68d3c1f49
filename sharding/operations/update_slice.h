// dynamic_update_slice: an array with one box of it replaced.
#pragma once

#include "sharding/operations/operand.h"

namespace tessera {

// x with `update` in the place of what was there from `start` on, moved back where it would end outside.
Array dynamic_update_slice(Operand x, const Array& update, Shape start);

}  // namespace tessera
