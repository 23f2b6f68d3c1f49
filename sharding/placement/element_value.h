// What an element type holds of numbers and sizes, and the Error of those that it does not.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "sharding/placement/dtype.h"

namespace tessera::detail {

// The least and the most that an integer type holds.
struct Bounds {
  int64_t least, most;
};
Bounds bounds_of(DType dtype);

// Error (bad_argument): the type does not hold this number.
[[noreturn]] void refuse_number(const char* verb, const std::string& number, DType dtype);

// The value that an element of this type takes: beyond a floating type's range infinite, of integers without its
// fraction, of booleans 0 or 1. Error (bad_argument): NaN and what lies outside an integer type.
double element_value(const char* verb, double value, DType dtype);
int64_t element_value(const char* verb, int64_t value, DType dtype);

// Error (bad_argument): a shape with a size below 0, or of 2^63 bytes and more in elements of this type.
void check_size(const char* verb, DType dtype, std::span<const int64_t> shape);

}  // namespace tessera::detail
