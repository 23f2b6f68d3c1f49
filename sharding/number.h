// Numbers beside arrays, and sizes: what an element type holds of them, and the Error of those that it does not.
#pragma once

#include <span>
#include <string>

#include "sharding/operand.h"

namespace tessera::detail {

// As it was written: 3000000000, 0.5.
std::string text_of(const Number& number);

// Error (bad_argument), as in JAX: a whole number that the integer type it meets cannot hold. (A number takes the type
// of the array beside it; a fraction makes float32 of integers, a whole number int32 of booleans.)
void check_number(const char* verb, const Number& number, DType dtype);

// The value that an element of this type takes: beyond a floating type's range infinite, of integers without its
// fraction, of booleans 0 or 1. Error (bad_argument): NaN and what lies outside an integer type.
double element_value(const char* verb, double value, DType dtype);
int64_t element_value(const char* verb, int64_t value, DType dtype);

// Error (bad_argument): a shape with a size below 0, or of 2^63 bytes and more in elements of this type.
void check_size(const char* verb, DType dtype, std::span<const int64_t> shape);

}  // namespace tessera::detail
