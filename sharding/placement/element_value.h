// Checks that numbers and sizes fit an element type.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "sharding/placement/dtype.h"

namespace tessera::detail {

// The least and the largest value of an integer type.
struct Bounds {
  int64_t least, most;
};
Bounds bounds_of(DType dtype);

// Throws an Error (invalid_argument): this element type cannot hold the number.
[[noreturn]] void refuse_number(const char* verb, const std::string& number, DType dtype);

// Converts `value` to an element of this type: infinite beyond a floating type's range, truncated for integers, 0 or 1
// for booleans. Error (invalid_argument): NaN for an integer type, or a value outside the type's range.
double element_value(const char* verb, double value, DType dtype);
int64_t element_value(const char* verb, int64_t value, DType dtype);
// Like element_value, for a value that fills an array. A fraction for an integer type is also an Error
// (invalid_argument).
double fill_value(const char* verb, double value, DType dtype);

// Throws an Error (invalid_argument) for a negative size, or for 2^63 bytes or more in elements of this type.
void check_size(const char* verb, DType dtype, std::span<const int64_t> shape);

}  // namespace tessera::detail
