// Elementwise operations: a rule and an ATen call each.
#include "sharding/elementwise.h"

#include <ATen/ATen.h>

#include <cmath>

#include "sharding/operations_common.h"
#include "sharding/recipe.h"

namespace tessera {

using namespace detail;

namespace {

at::ScalarType scalar_type(DType dtype) { return static_cast<at::ScalarType>(dtype); }

constexpr auto nonlinear = Linearity::nonlinear;
constexpr auto multilinear = Linearity::multilinear;
constexpr auto additive = Linearity::additive;

const Operation add_op{"add", "*", additive};
const Operation sub_op{"sub", "*", additive};
const Operation mul_op{"mul", "*", multilinear};
const Operation div_op{"div", "*", nonlinear};
const Operation add_scalar_op{"add_scalar", "*", nonlinear};
const Operation scale_op{"scale", "*", additive};
const Operation exp_op{"exp", "*", nonlinear};
const Operation log_op{"log", "*", nonlinear};
const Operation sqrt_op{"sqrt", "*", nonlinear};
const Operation rsqrt_op{"rsqrt", "*", nonlinear};
const Operation square_op{"square", "*", nonlinear};
const Operation tanh_op{"tanh", "*", nonlinear};
const Operation sigmoid_op{"sigmoid", "*", nonlinear};
const Operation relu_op{"relu", "*", nonlinear};
const Operation silu_op{"silu", "*", nonlinear};
const Operation gelu_op{"gelu", "*", nonlinear};
const Operation astype_op{"astype", "*", additive};
const Operation round_op{"astype", "*", nonlinear};

// ---- elementwise

template <class Fn>
Array unary(const Operation& op, const Operand& x, Fn fn) {
  return run({.operation = op, .where = x.where()}, {&x.array()}, [fn](Locals t, const Where&) { return fn(t[0]); });
}

// A view, cast or scaling.
template <class Fn>
Array scaling(const Operation& op, const Operand& x, Fn fn) {
  return run_on_parameter({.operation = op, .where = x.where()}, x.array(),
                          [fn](Locals t, const Where&) { return fn(t[0]); });
}

template <class Fn>
Array binary(const Operation& op, const Operand& a, const Operand& b, Fn fn) {
  const auto call = [&](const Array& x, const Array& y) {
    return run({.operation = op, .where = a.where()}, {&x, &y},
               [fn](Locals t, const Where&) { return fn(t[0], t[1]); });
  };
  const Array &x = a.array(), &y = b.array();
  if (x.is_absent() || y.is_absent() || x.impl()->type->dtype == y.impl()->type->dtype) return call(x, y);
  const DType common = promote(x.dtype(), y.dtype());
  return call(astype({x, a.where()}, common), astype({y, b.where()}, common));
}

}  // namespace

Array operator+(Operand a, Operand b) {
  return binary(add_op, a, b, [](const at::Tensor& x, const at::Tensor& y) { return at::add(x, y); });
}

Array operator-(Operand a, Operand b) {
  return binary(sub_op, a, b, [](const at::Tensor& x, const at::Tensor& y) { return at::sub(x, y); });
}

Array operator*(Operand a, Operand b) {
  return binary(mul_op, a, b, [](const at::Tensor& x, const at::Tensor& y) { return at::mul(x, y); });
}

Array operator/(Operand a, Operand b) {
  const Array x = as_floating(a), y = as_floating(b);
  return binary(div_op, {x, a.where()}, {y, b.where()},
                [](const at::Tensor& n, const at::Tensor& d) { return at::div(n, d); });
}

namespace {

// An integer array with a scalar that is no integer becomes float32, as with JAX's weak types.
Array for_scalar(const Operand& x, double scalar) {
  const Array& a = x.array();
  return a.is_absent() || is_floating(a.dtype()) || scalar == std::trunc(scalar) ? a : astype(x, float32);
}

// The scalar as the tensor's own kind of number: integers stay exact.
at::Scalar scalar_of(double value, const at::Tensor& like) {
  return at::isFloatingType(like.scalar_type()) ? at::Scalar(value) : at::Scalar(static_cast<int64_t>(value));
}

Array plus(const Operand& a, double b) {
  const Array x = for_scalar(a, b);
  return unary(add_scalar_op, {x, a.where()},
               [b](const at::Tensor& t) { return at::add(t, scalar_of(b, t)).to(t.scalar_type()); });
}

Array times(const Operand& a, double b) {
  const ArrayImpl* given = a.array().impl().get();
  if (given && is_floating(given->type->dtype)) {
    if (given->details && given->details->recipe) return scaled(a.array(), b);
    return scaling(scale_op, a, [b](const at::Tensor& t) { return at::mul(t, b); });
  }
  const Array x = for_scalar(a, b);
  return unary(scale_op, {x, a.where()},
               [b](const at::Tensor& t) { return at::mul(t, scalar_of(b, t)).to(t.scalar_type()); });
}

}  // namespace

Array operator+(Operand a, double b) { return plus(a, b); }
Array operator+(double a, Operand b) { return plus(b, a); }
Array operator-(Operand a, double b) { return plus(a, -b); }
Array operator-(double a, Operand b) { return plus({times(b, -1), b.where()}, a); }
Array operator*(Operand a, double b) { return times(a, b); }
Array operator*(double a, Operand b) { return times(b, a); }
Array operator-(Operand a) { return times(a, -1); }

Array operator/(Operand a, double b) {
  const Array x = as_floating(a);
  return scaling(scale_op, {x, a.where()}, [b](const at::Tensor& t) { return at::div(t, b); });
}

Array exp(Operand x) {
  return unary(exp_op, {as_floating(x), x.where()}, [](const at::Tensor& t) { return at::exp(t); });
}

Array log(Operand x) {
  return unary(log_op, {as_floating(x), x.where()}, [](const at::Tensor& t) { return at::log(t); });
}

Array sqrt(Operand x) {
  return unary(sqrt_op, {as_floating(x), x.where()}, [](const at::Tensor& t) { return at::sqrt(t); });
}

Array rsqrt(Operand x) {
  return unary(rsqrt_op, {as_floating(x), x.where()}, [](const at::Tensor& t) { return at::rsqrt(t); });
}

Array square(Operand x) {
  return unary(square_op, x, [](const at::Tensor& t) { return at::mul(t, t); });
}

Array tanh(Operand x) {
  return unary(tanh_op, {as_floating(x), x.where()}, [](const at::Tensor& t) { return at::tanh(t); });
}

Array sigmoid(Operand x) {
  return unary(sigmoid_op, {as_floating(x), x.where()}, [](const at::Tensor& t) { return at::sigmoid(t); });
}

Array relu(Operand x) {
  return unary(relu_op, x, [](const at::Tensor& t) { return at::relu(t); });
}

Array silu(Operand x) {
  return unary(silu_op, {as_floating(x), x.where()}, [](const at::Tensor& t) { return at::silu(t); });
}

Array gelu(Operand x, bool approximate) {
  return unary(gelu_op, {as_floating(x), x.where()},
               [approximate](const at::Tensor& t) { return at::gelu(t, approximate ? "tanh" : "none"); });
}

Array astype(Operand x, DType dtype) {
  const Array& a = x.array();
  if (!a.is_absent() && a.dtype() == dtype) return a;
  if (a.is_recipe()) return recast(a, dtype);
  return run_on_parameter(
      {.operation = is_floating(dtype) ? astype_op : round_op, .out_dtype = dtype, .where = x.where()}, a,
      [dtype](Locals t, const Where&) { return t[0].to(scalar_type(dtype)); }, is_floating(dtype));
}

Array stop_gradient(Operand x) {
  ArrayImpl& a = materialized(x.array(), "stop_gradient");
  Tensors local;
  for (const at::Tensor& t : a.local) local.push_back(t.detach());
  ArrayPtr plain = make_array(a.type, a.slots, std::move(local));
  plain->weight = a.weight;
  plain->layout = a.layout;
  return Array(std::move(plain));
}

}  // namespace tessera
