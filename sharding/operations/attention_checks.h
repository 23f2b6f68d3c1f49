// Checks of the mask and the bias that all forms of attention share.
#pragma once

#include "sharding/array/array.h"

namespace tessera::detail {

// Both may be absent. Errors (dtype_mismatch) that begin with the verb: a mask that is not of booleans, a bias whose
// type is not floating.
void check_mask_and_bias(const char* verb, const Array& mask, const Array& bias);

}  // namespace tessera::detail
