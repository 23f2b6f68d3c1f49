// Functions of one array, as a table: a name, the element types in which it computes, and an ATen call.
#include <ATen/ATen.h>

#include <limits>

#include "sharding/array/autograd.h"
#include "sharding/base/fail.h"
#include "sharding/operations/elementwise/elementwise_call.h"

namespace tessera {

using namespace detail;

namespace {

// Returns abs(x). JAX's gradient of abs at 0 is 1; LibTorch's is 0.
at::Tensor magnitude(const at::Tensor& x) {
  if (x.scalar_type() == at::kBool) return x;
  if (!is_recorded(x)) return at::abs(x);
  Tensors out{at::abs(x.detach())};
  const Backward signed_gradient = [x = x.detach()](const Tensors& g) {
    return Tensors{at::where(at::ge(x, 0), g[0], at::neg(g[0]))};
  };
  record_function("abs", {x}, out, signed_gradient, signed_gradient);
  return out[0];
}

// Returns leaky_relu(x). JAX's gradient at 0 is 1; LibTorch's is the slope.
at::Tensor leaky(const at::Tensor& x, double slope) {
  if (!is_recorded(x)) return at::leaky_relu(x, slope);
  Tensors out{at::leaky_relu(x.detach(), slope)};
  const Backward gradient = [x = x.detach(), slope](const Tensors& g) {
    return Tensors{at::where(at::ge(x, 0), g[0], at::mul(g[0], slope))};
  };
  record_function("leaky_relu", {x}, out, gradient, gradient);
  return out[0];
}

// Returns the cube root, also below 0, with an infinite derivative at 0.
at::Tensor cube_root(const at::Tensor& x) {
  const at::Tensor sign = at::copysign(at::ones_like(x.detach()), x.detach());
  return at::mul(sign, at::pow(at::mul(sign, x), 1.0 / 3));
}

double largest(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return std::numeric_limits<double>::max();
    case at::kHalf:
      return std::numeric_limits<c10::Half>::max();
    case at::kBFloat16:
      return std::numeric_limits<c10::BFloat16>::max();
    default:
      return std::numeric_limits<float>::max();
  }
}

// Returns the sign like jnp.sign: keeps -0 and NaN, for which LibTorch returns 0. x * most * most exceeds 1 for every
// other value.
at::Tensor sign_of(const at::Tensor& x) {
  if (!x.is_floating_point()) return at::sign(x);
  if (is_recorded(x)) return at::where(at::gt(at::abs(x.detach()), 0), at::sign(x), x.detach());
  const at::Scalar most = largest(x.scalar_type());
  return at::mul(x, most).mul_(most).clamp_(-1, 1);
}

}  // namespace

// Defines a function whose `call` is computed on the local tensor x.
#define TESSERA_PADDED(name, padded, domain, out, call)                                                \
  namespace {                                                                                          \
  const Operation name##_op{#name, "*", Linearity::nonlinear, padded};                                 \
  }                                                                                                    \
  Array name(Operand x) {                                                                              \
    return unary({name##_op, domain, out}, x, [](const at::Tensor& x) -> at::Tensor { return call; }); \
  }

#define TESSERA_UNARY(name, domain, out, call) TESSERA_PADDED(name, Padded::kept, domain, out, call)
#define TESSERA_FLOATING(name, call) TESSERA_UNARY(name, Domain::floating, like_first, call)
// Defines a function without a value, or without a derivative, at 0.
#define TESSERA_NOT_OF_ZERO(name, call) TESSERA_PADDED(name, Padded::kept_as_ones, Domain::floating, like_first, call)

TESSERA_NOT_OF_ZERO(reciprocal, at::reciprocal(x))
TESSERA_NOT_OF_ZERO(sqrt, at::sqrt(x))
TESSERA_NOT_OF_ZERO(cbrt, cube_root(x))
TESSERA_NOT_OF_ZERO(log, at::log(x))
TESSERA_NOT_OF_ZERO(log2, at::log2(x))
TESSERA_NOT_OF_ZERO(log10, at::log10(x))
TESSERA_FLOATING(exp, at::exp(x))
TESSERA_FLOATING(exp2, at::exp2(x))
TESSERA_FLOATING(expm1, at::expm1(x))
TESSERA_FLOATING(log1p, at::log1p(x))
TESSERA_FLOATING(sin, at::sin(x))
TESSERA_FLOATING(cos, at::cos(x))
TESSERA_FLOATING(tan, at::tan(x))
TESSERA_FLOATING(arcsin, at::asin(x))
TESSERA_FLOATING(arccos, at::acos(x))
TESSERA_FLOATING(arctan, at::atan(x))
TESSERA_FLOATING(sinh, at::sinh(x))
TESSERA_FLOATING(cosh, at::cosh(x))
TESSERA_FLOATING(tanh, at::tanh(x))
TESSERA_FLOATING(arcsinh, at::asinh(x))
TESSERA_FLOATING(arccosh, at::acosh(x))
TESSERA_FLOATING(arctanh, at::atanh(x))
TESSERA_FLOATING(erf, at::erf(x))
TESSERA_FLOATING(erfc, at::erfc(x))

TESSERA_FLOATING(log_sigmoid, at::log_sigmoid(x))
TESSERA_FLOATING(selu, at::selu(x))
TESSERA_FLOATING(mish, at::mish(x))
TESSERA_FLOATING(soft_sign, at::div(x, at::abs(x).add(1)))
TESSERA_FLOATING(softplus, at::softplus(x, 1, /*threshold=*/40))  // equal to x in double precision from there on

TESSERA_PADDED(rsqrt, Padded::kept_as_ones, Domain::floating_alone, like_first, at::rsqrt(x))
TESSERA_UNARY(erf_inv, Domain::floating_alone, like_first, at::erfinv(x))
TESSERA_UNARY(sigmoid, Domain::floating_alone, like_first, at::sigmoid(x))
TESSERA_UNARY(silu, Domain::floating_alone, like_first, at::silu(x))

TESSERA_UNARY(abs, Domain::any, like_first, magnitude(x))
TESSERA_UNARY(sign, Domain::no_booleans, like_first, sign_of(x))
TESSERA_UNARY(floor, Domain::any, like_first, x.is_floating_point() ? at::floor(x) : x)
TESSERA_UNARY(ceil, Domain::any, like_first, x.is_floating_point() ? at::ceil(x) : x)
TESSERA_UNARY(trunc, Domain::any, like_first, x.is_floating_point() ? at::trunc(x) : x)
TESSERA_UNARY(nan_to_num, Domain::any, like_first, x.is_floating_point() ? at::nan_to_num(x) : x)
TESSERA_UNARY(square, Domain::counting, like_first, at::mul(x, x))
TESSERA_UNARY(relu, Domain::counting, like_first, at::relu(x))
TESSERA_UNARY(bitwise_not, Domain::integral, like_first, at::bitwise_not(x))

TESSERA_UNARY(logical_not, Domain::any, boolean, at::logical_not(x))
TESSERA_UNARY(isfinite, Domain::any, boolean, at::isfinite(x))
TESSERA_UNARY(isinf, Domain::any, boolean, at::isinf(x))
TESSERA_UNARY(isnan, Domain::any, boolean, at::isnan(x))

#undef TESSERA_NOT_OF_ZERO
#undef TESSERA_FLOATING
#undef TESSERA_UNARY
#undef TESSERA_PADDED

// ---- functions with a parameter

namespace {

const Operation round_op{"round", "*", Linearity::nonlinear, Padded::kept};
const Operation gelu_op{"gelu", "*", Linearity::nonlinear, Padded::kept};
const Operation leaky_relu_op{"leaky_relu", "*", Linearity::nonlinear, Padded::kept};
const Operation elu_op{"elu", "*", Linearity::nonlinear, Padded::kept};
const Operation celu_op{"celu", "*", Linearity::nonlinear, Padded::kept};

}  // namespace

Array round(Operand x, int decimals) {
  if (const Array& a = x.array(); decimals < 0 && !a.is_absent() && !is_floating(a.dtype()))
    fail(ErrorKind::dtype_mismatch, "round", "decimals {} of {}, expected 0 or more of integers. Convert with astype.",
         decimals, a.type_string());
  return unary({round_op, Domain::no_booleans}, x,
               [decimals](const at::Tensor& t) { return t.is_floating_point() ? at::round(t, decimals) : t; });
}

Array gelu(Operand x, bool approximate) {
  return unary({gelu_op, Domain::floating}, x,
               [approximate](const at::Tensor& t) { return at::gelu(t, approximate ? "tanh" : "none"); });
}

Array leaky_relu(Operand x, double negative_slope) {
  return unary({leaky_relu_op, Domain::floating}, x,
               [negative_slope](const at::Tensor& t) { return leaky(t, negative_slope); });
}

Array elu(Operand x, double alpha) {
  return unary({elu_op, Domain::floating}, x, [alpha](const at::Tensor& t) { return at::elu(t, alpha); });
}

Array celu(Operand x, double alpha) {
  if (alpha == 0) fail(ErrorKind::invalid_argument, "celu", "alpha 0 given, expected another number.");
  return unary({celu_op, Domain::floating}, x, [alpha](const at::Tensor& t) { return at::celu(t, alpha); });
}

}  // namespace tessera
