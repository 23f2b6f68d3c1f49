// What every way of attending asks of a mask and a bias.
#pragma once

#include "sharding/array/array.h"

namespace tessera::detail {

// Both may be absent. Errors (dtype_mismatch) that begin with the verb: a mask that is not of booleans, a bias whose
// type is not floating.
void check_mask_and_bias(const char* verb, const Array& mask, const Array& bias);

}  // namespace tessera::detail
