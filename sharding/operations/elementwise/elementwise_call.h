// What the elementwise operations share: element types, numbers as operands, the call.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/operand.h"
#include "sharding/propagation/run.h"

namespace tessera::detail {

// The element types that an operation computes in, and what becomes of the others.
enum class Domain : uint8_t {
  any,
  no_booleans,     // booleans are refused
  counting,        // booleans become int32
  integral,        // fractions are refused
  floating,        // others become float32
  floating_alone,  // others are refused
};

// Whether an operation takes `dtype` at all, and the type that it then computes in.
inline bool is_refused(Domain domain, DType dtype) {
  return (domain == Domain::no_booleans && dtype == boolean) || (domain == Domain::integral && is_floating(dtype)) ||
         (domain == Domain::floating_alone && !is_floating(dtype));
}
inline DType computing_dtype(Domain domain, DType dtype) {
  if (domain == Domain::counting && dtype == boolean) return int32;
  return domain == Domain::floating && !is_floating(dtype) ? float32 : dtype;
}
// The Error (dtype_mismatch) of a type that is refused.
[[noreturn]] void refuse_dtype(Domain domain, const char* verb, const std::string& operands);

// The element type of the result of an array of `dtype` and a number.
DType with_number(DType dtype, const Number& number);

// x in `dtype`.
Array cast_to(const Operand& x, DType dtype);

// One table row: the operation, what it computes in, and the type of its results if that is another.
struct Elementwise {
  const Operation& operation;
  Domain domain;
  DType out = like_first;
};

// `fn` on x's local tensors; x is cast first if the row computes in another element type.
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

// `local` on two arrays cast to one element type, or on an array and a number. Of two numbers the first becomes an
// array.
Array binary(const Elementwise& row, const ArrayOrNumber& a, const ArrayOrNumber& b, Local2 local);

// The element type to which a and b are cast.
DType common_dtype(const Elementwise& row, const ArrayOrNumber& a, const ArrayOrNumber& b);

// The number as a tensor that LibTorch combines with `beside` without changing the result's type.
at::Tensor as_tensor(const Number& number, const at::Tensor& beside);

// The number as it was written: 3000000000, 0.5.
std::string text_of(const Number& number);

// Whether it is of unsigned 64 bits and above int64's: `integer` is then another number, `floating` is the value.
bool is_beyond_int64(const Number& number);

// Error (invalid_argument), as in JAX: a whole number that the integer type it meets cannot hold. (A number takes the
// type of the other operand; a fraction makes float32 of integers, a whole number int32 of booleans.)
void check_number(const char* verb, const Number& number, DType dtype);

}  // namespace tessera::detail
