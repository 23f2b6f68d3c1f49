// Checks of the options that all forms of attention share.
#pragma once

#include "sharding/array/array.h"

namespace tessera::detail {

// Both may be absent. Errors (dtype_mismatch) that begin with the verb: a mask that is not of booleans, a bias whose
// type is not floating.
void check_mask_and_bias(const char* verb, const Array& mask, const Array& bias);
// Errors (invalid_argument): a window below 0, a softcap that is below 0 or not finite.
void check_window_and_softcap(const char* verb, int64_t window, double softcap);

}  // namespace tessera::detail
