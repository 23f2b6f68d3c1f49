// check_attributes: the Error of a call with more dims than a plan's key holds.
#pragma once

#include <cstddef>

#include "sharding/array.h"

namespace tessera::detail {

// Error (bad_argument) if `given` attributes of a call on x, named `what` there, do not fit beside `others` of it.
void check_attributes(const char* verb, const Array& x, const char* what, size_t given, size_t others = 0);

}  // namespace tessera::detail
