// What the files of operations share: checked dims, names for factors, floating operands.
#pragma once

#include <string>
#include <vector>

#include "sharding/operations.h"
#include "sharding/run.h"

namespace tessera::detail {

// d0, d1, ...: a factor for each of n dims.
std::vector<std::string> letters(size_t n);

// `dim` of x counted from the front. Error (bad_argument) if x has no such dim.
int checked_dim(const char* verb, const Array& x, int dim);

// x, in float32 if it holds integers or booleans: for results that cannot be integers.
Array as_floating(const Operand& x);

}  // namespace tessera::detail
