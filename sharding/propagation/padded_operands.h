// What operations read in place of operands that have padding.
#pragma once

#include "sharding/propagation/run.h"

namespace tessera::detail {

// Puts the operand with what the operation wants in its padding in its place. Without a gradient the zeros are read as
// they are.
void read_padded(Prepared& call, const CallSite& site, int i);

// Expands the operands of an elementwise operation that are broadcast over padding filled with ones. Their gradients
// are sums over padded dims. Padding must not enter these sums: for a divisor of 0 it would add 0 * (1 / 0), which is NaN.
void expand_over_padding(Prepared& call, const CallSite& site);

}  // namespace tessera::detail
