// Element types and calls of elementwise operations.
#include "sharding/operations/elementwise/elementwise_call.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "sharding/array/array_impl.h"
#include "sharding/base/fail.h"
#include "sharding/placement/element_value.h"

namespace tessera::detail {

void refuse_dtype(Domain domain, const char* verb, const std::string& operands) {
  const char* expected = domain == Domain::no_booleans ? "numbers"
                         : domain == Domain::integral  ? "integers or booleans"
                                                       : "a floating type";
  fail(ErrorKind::dtype_mismatch, verb, "given {}, expected {}. Convert with astype.", operands, expected);
}

DType with_number(DType dtype, const Number& number) {
  if (number.kind == Number::Kind::floating) return is_floating(dtype) ? dtype : float32;
  return number.kind == Number::Kind::integer && dtype == boolean ? int32 : dtype;
}

Array cast_to(const Operand& x, DType dtype) { return x.array().dtype() == dtype ? x.array() : astype(x, dtype); }

at::Tensor as_tensor(const Number& number, const at::Tensor& other) {
  const bool fraction = number.kind == Number::Kind::floating || (number.integer < 0 && number.floating > 0);
  const bool truth = number.kind == Number::Kind::boolean && other.scalar_type() == at::kBool;
  at::Tensor t = c10::scalar_to_tensor(fraction ? at::Scalar(number.floating)
                                       : truth  ? at::Scalar(number.integer != 0)
                                                : at::Scalar(number.integer));
  t.unsafeGetTensorImpl()->set_wrapped_number(true);
  return t;
}

namespace {

const Type* type_of(const ArrayOrNumber& x, const char* verb) { return materialized(x.array(), verb).type; }

std::string described(const ArrayOrNumber& x) { return x.is_number() ? text_of(x.number()) : x.array().type_string(); }

// Converts a number to an array, for a call without an array operand.
Array as_array(const Number& number) {
  constexpr DType types[] = {boolean, int32, float32};
  check_number("array", number, types[static_cast<int>(number.kind)]);
  return full({}, number.floating, types[static_cast<int>(number.kind)]);
}

Array with_right_number(const Elementwise& row, const ArrayOrNumber& a, const Number& b, Local2 local) {
  return run({.operation = row.operation, .out_dtype = row.out, .where = a.where()}, {&a.array()},
             [&](Locals t, const BlockContext&) { return local(t[0], as_tensor(b, t[0])); });
}

Array with_left_number(const Elementwise& row, const Number& a, const ArrayOrNumber& b, Local2 local) {
  return run({.operation = row.operation, .out_dtype = row.out, .where = b.where()}, {&b.array()},
             [&](Locals t, const BlockContext&) { return local(as_tensor(a, t[0]), t[0]); });
}

bool is_in(const ArrayOrNumber& x, DType dtype) { return x.is_number() || x.array().impl()->type->dtype == dtype; }

}  // namespace

DType common_dtype(const Elementwise& row, const ArrayOrNumber& a, const ArrayOrNumber& b) {
  const char* verb = row.operation.name;
  const DType dtype = a.is_number()   ? with_number(type_of(b, verb)->dtype, a.number())
                      : b.is_number() ? with_number(type_of(a, verb)->dtype, b.number())
                                      : promote(type_of(a, verb)->dtype, type_of(b, verb)->dtype);
  if (is_refused(row.domain, dtype))
    refuse_dtype(row.domain, verb, fmt::format("{} and {}", described(a), described(b)));
  return computing_dtype(row.domain, dtype);
}

Array binary(const Elementwise& row, const ArrayOrNumber& a, const ArrayOrNumber& b, Local2 local) {
  if (a.is_number() && b.is_number()) {
    const Array first = as_array(a.number());
    return binary(row, Operand(first, a.where()), b, local);
  }
  const DType common = common_dtype(row, a, b);
  if (!is_in(a, common)) {
    const Array cast = cast_to(a.operand(), common);
    return binary(row, Operand(cast, a.where()), b, local);
  }
  if (!is_in(b, common)) {
    const Array cast = cast_to(b.operand(), common);
    return binary(row, a, Operand(cast, b.where()), local);
  }
  if (a.is_number() || b.is_number()) check_number(row.operation.name, (a.is_number() ? a : b).number(), common);
  if (a.is_number()) return with_left_number(row, a.number(), b, local);
  if (b.is_number()) return with_right_number(row, a, b.number(), local);
  return run({.operation = row.operation, .out_dtype = row.out, .where = a.where()}, {&a.array(), &b.array()},
             [local](Locals t, const BlockContext&) { return local(t[0], t[1]); });
}

bool is_beyond_int64(const Number& number) { return number.integer < 0 && number.floating > 0; }

std::string text_of(const Number& number) {
  if (number.kind == Number::Kind::floating) return fmt::format("{}", number.floating);
  return is_beyond_int64(number) ? fmt::format("{}", static_cast<uint64_t>(number.integer))
                                 : fmt::format("{}", number.integer);
}

void check_number(const char* verb, const Number& number, DType dtype) {
  if (number.kind != Number::Kind::integer || is_floating(dtype) || dtype == boolean) return;
  const Bounds b = bounds_of(dtype);
  if (is_beyond_int64(number) || number.integer < b.least || number.integer > b.most)
    refuse_number(verb, text_of(number), dtype);
}

}  // namespace tessera::detail
