// Arithmetic, comparisons, logic and casts: each has a rule and an ATen call.
#include "sharding/operations/elementwise/elementwise.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <utility>

#include "sharding/array/autograd.h"
#include "sharding/array/late_checks.h"
#include "sharding/array/recipe.h"
#include "sharding/base/fail.h"
#include "sharding/operations/elementwise/elementwise_call.h"
#include "sharding/placement/element_value.h"

namespace tessera {

using namespace detail;
using enum Linearity;

namespace {

const Operation add_op{"add", "*", additive, Padded::kept};
const Operation sub_op{"sub", "*", additive, Padded::kept};
const Operation mul_op{"mul", "*", multilinear, Padded::kept};
const Operation div_op{"div", "*", nonlinear, Padded::kept_as_ones};
const Operation add_scalar_op{"add_scalar", "*", nonlinear, Padded::kept};
const Operation scale_op{"scale", "*", additive, Padded::kept};
const Operation scale_without_end_op{"scale", "*", nonlinear, Padded::kept_as_ones};
const Operation negative_op{"negative", "*", additive, Padded::kept};
const Operation power_op{"power", "*", nonlinear, Padded::kept_as_ones};
const Operation clip_op{"clip", "*", nonlinear, Padded::kept};
const Operation where_op{"where", "*", nonlinear, Padded::kept};
const Operation astype_op{"astype", "*", additive, Padded::kept};
const Operation rounding_op{"astype", "*", nonlinear, Padded::kept};

}  // namespace

// ---- sums: a partial sum plus a number has to be summed first

namespace {

Array sum_of(const Elementwise& row, const ArrayOrNumber& a, const ArrayOrNumber& b, Local2 local) {
  const bool number = a.is_number() || b.is_number();
  return binary(number ? Elementwise{add_scalar_op, row.domain} : row, a, b, local);
}

}  // namespace

Array operator+(ArrayOrNumber a, ArrayOrNumber b) {
  return sum_of({add_op, Domain::any}, a, b, [](const at::Tensor& x, const at::Tensor& y) { return at::add(x, y); });
}

Array operator-(ArrayOrNumber a, ArrayOrNumber b) {
  return sum_of({sub_op, Domain::no_booleans}, a, b,
                [](const at::Tensor& x, const at::Tensor& y) { return at::sub(x, y); });
}

// ---- products: a parameter scaled by a number keeps its parameter source

namespace {

at::Tensor times_elementwise(const at::Tensor& x, const at::Tensor& y) { return at::mul(x, y); }
at::Tensor divided(const at::Tensor& x, const at::Tensor& y) { return at::div(x, y); }

// LibTorch's functions of a tensor and a number save less for the backward pass than its functions of two tensors.
using LocalScale = at::Tensor (*)(const at::Tensor&, const at::Scalar&);
at::Tensor multiplied_by(const at::Tensor& x, const at::Scalar& number) { return at::mul(x, number); }
at::Tensor divided_by(const at::Tensor& x, const at::Scalar& number) { return at::div(x, number); }

Array scaled_array(const ArrayOrNumber& x, double number, LocalScale local) {
  return run_on_parameter({.operation = scale_op, .where = x.where()}, x.array(),
                          [number, local](Locals t, const BlockContext&) { return local(t[0], number); });
}

// Returns x times the number. A partial sum must be reduced before it is multiplied by infinity: infinite terms may add
// up to NaN.
Array times(const ArrayOrNumber& x, const Number& number) {
  if (!std::isfinite(number.floating)) return binary({scale_without_end_op, Domain::any}, x, number, times_elementwise);
  const ArrayImpl* given = x.array().impl().get();
  if (!given || !is_floating(given->type->dtype)) return binary({scale_op, Domain::any}, x, number, times_elementwise);
  if (x.array().is_lazy()) return scaled(x.array(), number.floating);
  return scaled_array(x, number.floating, multiplied_by);
}

}  // namespace

Array operator*(ArrayOrNumber a, ArrayOrNumber b) {
  if (a.is_number() != b.is_number()) return a.is_number() ? times(b, a.number()) : times(a, b.number());
  return binary({mul_op, Domain::any}, a, b, times_elementwise);
}

// Divides. A partial sum must be reduced before it is divided by 0: infinite terms may add up to NaN.
Array operator/(ArrayOrNumber a, ArrayOrNumber b) {
  if (b.is_number() && b.number().floating != 0 && !a.is_number() && a.array().impl() &&
      is_floating(a.array().impl()->type->dtype))
    return scaled_array(a, b.number().floating, divided_by);
  return binary({div_op, Domain::floating}, a, b, divided);
}

Array operator-(Operand x) {
  const ArrayImpl* given = x.array().impl().get();
  if (given && is_floating(given->type->dtype) && x.array().is_lazy()) return times(x, -1);
  if (given && is_floating(given->type->dtype))
    return run_on_parameter({.operation = scale_op, .where = x.where()}, x.array(),
                            [](Locals t, const BlockContext&) { return at::neg(t[0]); });
  return unary({negative_op, Domain::no_booleans}, x, [](const at::Tensor& t) { return at::neg(t); });
}

namespace {

// Converts to the nearest number of a floating type; beyond its range that is an infinity.
at::Scalar scalar_of(const char* verb, const Number& n, DType dtype) {
  if (is_floating(dtype)) return element_value(verb, n.floating, dtype);
  return n.kind == Number::Kind::floating || is_beyond_int64(n) ? at::Scalar(n.floating) : at::Scalar(n.integer);
}

}  // namespace

namespace {

// Throws for negative exponents of integers, for which LibTorch returns 0.
at::Tensor checked_exponents(const at::Tensor& y) {
  if (y.is_floating_point() || y.is_meta() || y.numel() == 0) return y;
  if (!y.is_cpu()) return checked_later("power", y, 0, INT64_MAX, at::kLong, "exponents").to(y.scalar_type());
  const auto least = y.min().item<int64_t>();
  if (least < 0)
    fail(ErrorKind::invalid_argument, "power",
         "an exponent of {} given for integers, expected 0 or more. Convert an operand to a floating type by astype.",
         least);
  return y;
}

}  // namespace

Array power(ArrayOrNumber a, ArrayOrNumber b) {
  const Elementwise row{power_op, Domain::counting};
  if (a.is_number() == b.is_number())
    return binary(row, a, b, [](const at::Tensor& x, const at::Tensor& y) { return at::pow(x, checked_exponents(y)); });
  const Array x = cast_to((a.is_number() ? b : a).operand(), common_dtype(row, a, b));
  check_number("power", (a.is_number() ? a : b).number(), x.dtype());
  const at::Scalar number = scalar_of("power", (a.is_number() ? a : b).number(), x.dtype());
  if (b.is_number() && !is_floating(x.dtype())) checked_exponents(at::scalar_tensor(number, at::kLong));
  return run({.operation = power_op, .where = a.where()}, {&x}, [&](Locals t, const BlockContext&) {
    return a.is_number() ? at::pow(number, checked_exponents(t[0])) : at::pow(t[0], number);
  });
}

// ---- tables: each row's expression is computed on the local tensors x and y

#define TESSERA_BINARY(name, label, domain, out, padded, call)                                                     \
  namespace {                                                                                                      \
  const Operation label##_op{#label, "*", nonlinear, padded};                                                      \
  }                                                                                                                \
  Array name(ArrayOrNumber a, ArrayOrNumber b) {                                                                   \
    return binary({label##_op, domain, out}, a, b, [](const at::Tensor& x, const at::Tensor& y) { return call; }); \
  }

TESSERA_BINARY(floor_divide, floor_divide, Domain::counting, like_first, Padded::kept_as_ones, at::div(x, y, "floor"))
TESSERA_BINARY(operator%, remainder, Domain::counting, like_first, Padded::kept_as_ones, at::remainder(x, y))
TESSERA_BINARY(maximum, maximum, Domain::any, like_first, Padded::kept, at::maximum(x, y))
TESSERA_BINARY(minimum, minimum, Domain::any, like_first, Padded::kept, at::minimum(x, y))
TESSERA_BINARY(logaddexp, logaddexp, Domain::floating, like_first, Padded::kept, at::logaddexp(x, y))
TESSERA_BINARY(arctan2, arctan2, Domain::floating, like_first, Padded::kept_as_ones, at::atan2(x, y))

TESSERA_BINARY(operator<, less, Domain::any, boolean, Padded::kept, at::lt(x, y))
TESSERA_BINARY(operator<=, less_equal, Domain::any, boolean, Padded::kept, at::le(x, y))
TESSERA_BINARY(operator>, greater, Domain::any, boolean, Padded::kept, at::gt(x, y))
TESSERA_BINARY(operator>=, greater_equal, Domain::any, boolean, Padded::kept, at::ge(x, y))
TESSERA_BINARY(equal, equal, Domain::any, boolean, Padded::kept, at::eq(x, y))
TESSERA_BINARY(not_equal, not_equal, Domain::any, boolean, Padded::kept, at::ne(x, y))

TESSERA_BINARY(logical_and, logical_and, Domain::any, boolean, Padded::kept, at::logical_and(x, y))
TESSERA_BINARY(logical_or, logical_or, Domain::any, boolean, Padded::kept, at::logical_or(x, y))
TESSERA_BINARY(logical_xor, logical_xor, Domain::any, boolean, Padded::kept, at::logical_xor(x, y))
TESSERA_BINARY(bitwise_and, bitwise_and, Domain::integral, like_first, Padded::kept, at::bitwise_and(x, y))
TESSERA_BINARY(bitwise_or, bitwise_or, Domain::integral, like_first, Padded::kept, at::bitwise_or(x, y))
TESSERA_BINARY(bitwise_xor, bitwise_xor, Domain::integral, like_first, Padded::kept, at::bitwise_xor(x, y))

#undef TESSERA_BINARY

// ---- three operands

namespace {

// Clips t. An element equal to a bound gets half of its gradient, as in JAX; at::clamp would give it the complete
// gradient.
at::Tensor clipped(const at::Tensor& t, const Number& min, const Number& max) {
  const auto dtype = static_cast<DType>(t.scalar_type());
  if (dtype != boolean && !is_recorded(t))
    return at::clamp(t, scalar_of("clip", min, dtype), scalar_of("clip", max, dtype));
  return at::minimum(at::maximum(t, as_tensor(min, t)), as_tensor(max, t));
}

}  // namespace

Array clip(Operand x, ArrayOrNumber min, ArrayOrNumber max) {
  if (!min.is_number() || !max.is_number()) return minimum(maximum(x, min), max);
  const Elementwise row{clip_op, Domain::any};
  const DType dtype = promote(common_dtype(row, x, min), common_dtype(row, x, max));
  check_number("clip", min.number(), dtype), check_number("clip", max.number(), dtype);
  return unary(row, {cast_to(x, dtype), x.where()},
               [&](const at::Tensor& t) { return clipped(t, min.number(), max.number()); });
}

namespace {

at::Tensor truth(const at::Tensor& t) { return t.scalar_type() == at::kBool ? t : t.to(at::kBool); }

// Returns the numeric branch of where() as a tensor of the result's type, so that two numbers also have that type.
at::Tensor branch(const Number& number, DType dtype, const at::Tensor& other) {
  const bool fraction = number.kind == Number::Kind::floating || is_beyond_int64(number);
  const at::Scalar value = fraction ? at::Scalar(element_value("where", number.floating, dtype))
                                    : at::Scalar(element_value("where", number.integer, dtype));
  return at::scalar_tensor(value, other.options().dtype(scalar_type(dtype)));
}

}  // namespace

Array where(Operand condition, ArrayOrNumber x, ArrayOrNumber y) {
  const bool are_numbers = x.is_number() && y.is_number();
  const DType dtype = are_numbers ? with_number(with_number(boolean, x.number()), y.number())
                                  : common_dtype({where_op, Domain::any}, x, y);
  Array cast[2];
  const Array* operands[] = {&condition.array(), nullptr, nullptr};
  int n = 1;
  for (const ArrayOrNumber& branch : {x, y}) {
    if (branch.is_number()) {
      check_number("where", branch.number(), dtype);
    } else {
      cast[n - 1] = cast_to(branch.operand(), dtype);
      operands[n] = &cast[n - 1], ++n;
    }
  }
  Prepared call;
  prepare(call, {.operation = where_op, .out_dtype = dtype, .where = condition.where()}, operands, n);
  return run(call, where_op.name, [&](Locals t, const BlockContext&) {
    const at::Tensor first = x.is_number() ? branch(x.number(), dtype, t[0]) : t[1];
    const at::Tensor second = y.is_number() ? branch(y.number(), dtype, t[0]) : t[n - 1];
    return at::where(truth(t[0]), first, second);
  });
}

// ---- casts

namespace {

// Casts as XLA does: values beyond the integer type become its nearest bound, and NaN becomes 0. In C++ both are
// undefined.
at::Tensor as_integers(const at::Tensor& t, at::ScalarType type) {
  if (type == at::kLong) {
    const at::Tensor wide = at::nan_to_num(t.to(at::kDouble));
    const auto most = std::numeric_limits<int64_t>::max();
    return at::where(wide.ge(0x1p63), most, wide.clamp(-0x1p63, 0x1.fffffffffffffp62).to(type));
  }
  const auto [least, most] = type == at::kInt     ? std::pair(-0x1p31, 0x1p31 - 1)
                             : type == at::kShort ? std::pair(-0x1p15, 0x1p15 - 1)
                             : type == at::kChar  ? std::pair(-0x1p7, 0x1p7 - 1)
                                                  : std::pair(0.0, 0x1p8 - 1);
  return at::nan_to_num(t.to(at::kDouble)).clamp_(least, most).to(type);
}

}  // namespace

Array astype(Operand x, DType dtype) {
  const Array& a = x.array();
  if (!a.is_absent() && a.dtype() == dtype) return a;
  if (a.is_lazy() && can_recast(a)) return recast(a, dtype);
  return run_on_parameter(
      {.operation = is_floating(dtype) ? astype_op : rounding_op, .out_dtype = dtype, .where = x.where()}, a,
      [dtype](Locals t, const BlockContext&) {
        const at::ScalarType type = scalar_type(dtype);
        const bool rounds = t[0].is_floating_point() && at::isIntegralType(type, /*includeBool=*/false);
        return rounds ? as_integers(t[0], type) : t[0].to(type);
      },
      is_floating(dtype));
}

Array stop_gradient(Operand x) {
  ArrayImpl& a = materialized(x.array(), "stop_gradient");
  Tensors local;
  for (const at::Tensor& t : a.local) local.push_back(t.detach());
  ArrayPtr plain = make_array(a.type, a.slots, std::move(local));
  plain->weight = a.weight;
  plain->mesh_rules = a.mesh_rules;
  return Array(std::move(plain));
}

}  // namespace tessera
