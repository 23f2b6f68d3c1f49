// What operations read in place of operands that have padding.
#pragma once

#include "sharding/propagation/run.h"

namespace tessera::detail {

// Puts the operand with what the operation wants in its padding in its place. Without a gradient the zeros are read as
// they are.
void read_padded(Prepared& call, const CallSite& site, int i);

}  // namespace tessera::detail
