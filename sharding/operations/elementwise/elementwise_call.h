// Element types, number operands and calls of elementwise operations.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/operand.h"
#include "sharding/propagation/run.h"

namespace tessera::detail {

// The element types in which an operation computes, and its treatment of the others.
enum class Domain : uint8_t {
  any,
  no_booleans,     // booleans are an error
  counting,        // booleans become int32
  integral,        // floating types are an error
  floating,        // others become float32
  floating_alone,  // other types are an error
};

// is_refused returns true if the operation does not take `dtype`; computing_dtype returns the type in which it
// computes.
inline bool is_refused(Domain domain, DType dtype) {
  return (domain == Domain::no_booleans && dtype == boolean) || (domain == Domain::integral && is_floating(dtype)) ||
         (domain == Domain::floating_alone && !is_floating(dtype));
}
inline DType computing_dtype(Domain domain, DType dtype) {
  if (domain == Domain::counting && dtype == boolean) return int32;
  return domain == Domain::floating && !is_floating(dtype) ? float32 : dtype;
}
// Throws the Error (dtype_mismatch) of a refused type.
[[noreturn]] void refuse_dtype(Domain domain, const char* verb, const std::string& operands);

// Returns the element type of the result of an array of `dtype` and a number.
DType with_number(DType dtype, const Number& number);

// Returns x in `dtype`.
Array cast_to(const Operand& x, DType dtype);

// One table row: the operation, the types in which it computes, and the type of its results if that differs.
struct Elementwise {
  const Operation& operation;
  Domain domain;
  DType out = like_first;
};

// Applies `fn` to x's local tensors; x is cast first if the row computes in another element type.
template <class Fn>
Array unary(const Elementwise& row, const Operand& x, Fn fn) {
  const auto call = [&](const Array& a) {
    return run({.operation = row.operation, .out_dtype = row.out, .where = x.where()}, {&a},
               [fn](Locals t, const BlockContext&) { return fn(t[0]); });
  };
  const ArrayImpl* given = x.array().impl().get();
  if (!given || row.domain == Domain::any) return call(x.array());
  const DType dtype = given->type->dtype;
  if (is_refused(row.domain, dtype)) refuse_dtype(row.domain, row.operation.name, x.array().type_string());
  if (computing_dtype(row.domain, dtype) == dtype) return call(x.array());
  return call(astype(x, computing_dtype(row.domain, dtype)));
}

using Local2 = at::Tensor (*)(const at::Tensor&, const at::Tensor&);

// Applies `local` to two arrays cast to one element type, or to an array and a number. If both operands are numbers,
// the first becomes an array.
Array binary(const Elementwise& row, const ArrayOrNumber& a, const ArrayOrNumber& b, Local2 local);

// Returns the element type to which a and b are cast.
DType common_dtype(const Elementwise& row, const ArrayOrNumber& a, const ArrayOrNumber& b);

// Returns the number as a tensor that type promotion treats like a Python scalar. `other` is the second operand.
at::Tensor as_tensor(const Number& number, const at::Tensor& other);

// Returns the number as it was written: 3000000000, 0.5.
std::string text_of(const Number& number);

// Returns true for an unsigned 64-bit number above int64's range: then `integer` is not this number, and `floating` is
// the value.
bool is_beyond_int64(const Number& number);

// Throws an Error (invalid_argument), as in JAX, for an integer that the integer type of the other operand cannot hold.
// (A floating-point number with integers gives float32, an integer with booleans int32.)
void check_number(const char* verb, const Number& number, DType dtype);

}  // namespace tessera::detail
