// Numbers as operands: their text in messages, and the Error for a number that the element type cannot hold.
#pragma once

#include <string>

#include "sharding/operations/operand.h"

namespace tessera::detail {

// The number as it was written: 3000000000, 0.5.
std::string text_of(const Number& number);

// Whether it is of unsigned 64 bits and above int64's: `integer` is then another number, `floating` is the value.
bool is_beyond_int64(const Number& number);

// Error (invalid_argument), as in JAX: a whole number that the integer type it meets cannot hold. (A number takes the
// type of the array beside it; a fraction makes float32 of integers, a whole number int32 of booleans.)
void check_number(const char* verb, const Number& number, DType dtype);

}  // namespace tessera::detail
