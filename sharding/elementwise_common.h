// The machinery below the tables of elementwise operations: element types, numbers as operands, the call.
#pragma once

#include <ATen/core/Tensor.h>

#include "sharding/elementwise.h"
#include "sharding/run.h"

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

// The type that an operation on `dtype` computes in. Error (dtype_mismatch) where it is refused.
DType computing_dtype(Domain domain, DType dtype, const char* verb, const std::string& operands);

// The type of an array with a number beside it.
DType with_number(DType dtype, const Number& number);

// x in `dtype`.
Array cast_to(const Operand& x, DType dtype);

// One table row: the operation, what it computes in, and the type of its results if that is another.
struct Elementwise {
  const Operation& operation;
  Domain domain;
  DType out = like_first;
};

// `fn` on x's local tensors. Where x is in the right type already, nothing is made but the result.
template <class Fn>
Array unary(const Elementwise& row, const Operand& x, Fn fn) {
  const auto call = [&](const Array& a) {
    return run({.operation = row.operation, .out_dtype = row.out, .where = x.where()}, {&a},
               [fn](Locals t, const Where&) { return fn(t[0]); });
  };
  const ArrayImpl* given = x.array().impl().get();
  if (!given || row.domain == Domain::any || is_floating(given->type->dtype)) {
    if (given && row.domain == Domain::integral)
      computing_dtype(row.domain, given->type->dtype, row.operation.name, x.array().type_string());
    return call(x.array());
  }
  return call(cast_to(x, computing_dtype(row.domain, given->type->dtype, row.operation.name, x.array().type_string())));
}

using Local2 = at::Tensor (*)(const at::Tensor&, const at::Tensor&);

// `local` on two arrays of one type, or on one and a number. Two numbers: the first is an array of its own.
Array binary(const Elementwise& row, const Term& a, const Term& b, Local2 local);

// The type in which a and b meet.
DType common_dtype(const Elementwise& row, const Term& a, const Term& b);

// The number as LibTorch's operations take it beside a tensor: without a say in the result's type.
at::Tensor as_tensor(const Number& number);

}  // namespace tessera::detail
