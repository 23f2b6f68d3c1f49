// Elementwise operations, broadcast as in numpy; different element types are promoted as in JAX.
#pragma once

#include "sharding/operations/operand.h"

namespace tessera {

namespace detail {
template <class X, class Y>
concept EitherIsArray = std::convertible_to<const X&, const Array&> || std::convertible_to<const Y&, const Array&>;
}

// Names, values and gradients are as in jax.numpy and jax.nn. Where a gradient is not unique, it is JAX's: 0 for
// relu at 0, 1 for abs at 0. maximum, minimum and clip give half of the gradient to each of two equal operands. (The
// tables are tests/reference/elementwise.json.)
//
// Element types are promoted by promote(); numbers are weakly typed (see Number). For integers and booleans:
// - functions whose values are not integers compute in float32
// - floor and similar functions return them unchanged
// - square, power, floor_divide and remainder take booleans as int32
// - as in JAX, an Error (dtype_mismatch): negative, sign and differences of booleans; sigmoid, silu, rsqrt and erf_inv
//   of integers
// Bitwise operations on floating types are an Error (dtype_mismatch) too.

// ---- arithmetic

Array operator+(ArrayOrNumber a, ArrayOrNumber b);
Array operator-(ArrayOrNumber a, ArrayOrNumber b);
Array operator*(ArrayOrNumber a, ArrayOrNumber b);  // a lazy initializer times a number is a lazy initializer
Array operator/(ArrayOrNumber a, ArrayOrNumber b);
Array operator%(ArrayOrNumber a, ArrayOrNumber b);  // numpy.remainder: the result has the sign of b
Array operator-(Operand x);

Array floor_divide(ArrayOrNumber a, ArrayOrNumber b);
Array power(ArrayOrNumber a, ArrayOrNumber b);  // Error (invalid_argument): integers with a negative exponent
Array maximum(ArrayOrNumber a, ArrayOrNumber b);
Array minimum(ArrayOrNumber a, ArrayOrNumber b);
Array clip(Operand x, ArrayOrNumber min, ArrayOrNumber max);
// Diagnostics for common mistakes: names of PyTorch and C. torch.clamp has a different gradient at the bounds.
template <class X, class Y>
requires detail::EitherIsArray<X, Y> Array pow(const X&, const Y&) {
  static_assert(detail::dependent_false<X>, "tessera: pow is called power, as in numpy: power(x, y).");
  return {};
}
template <class X, class Y>
requires detail::EitherIsArray<X, Y> Array remainder(const X&, const Y&) {
  static_assert(detail::dependent_false<X>, "tessera: remainder is an operator: x % y.");
  return {};
}
template <class X, class... Bounds>
requires std::convertible_to<const X&, const Array&> Array clamp(const X&, const Bounds&...) {
  static_assert(detail::dependent_false<X>, "tessera: clamp is called clip, as in numpy: clip(x, min, max).");
  return {};
}
Array logaddexp(ArrayOrNumber a, ArrayOrNumber b);  // log(exp(a) + exp(b))
Array arctan2(ArrayOrNumber a, ArrayOrNumber b);

// ---- comparisons and logic: the results are booleans

Array operator<(ArrayOrNumber a, ArrayOrNumber b);
Array operator<=(ArrayOrNumber a, ArrayOrNumber b);
Array operator>(ArrayOrNumber a, ArrayOrNumber b);
Array operator>=(ArrayOrNumber a, ArrayOrNumber b);
// Compare elementwise. They are functions, not operators, since C++ programmers expect a single bool from a == b.
Array equal(ArrayOrNumber a, ArrayOrNumber b);
bool operator==(ArrayOrNumber a,
                ArrayOrNumber b) = delete;  // tessera: write equal(a, b), or nn::tree_equal for one bool
Array not_equal(ArrayOrNumber a, ArrayOrNumber b);

// Elements that are not zero count as true.
Array logical_and(ArrayOrNumber a, ArrayOrNumber b);
Array logical_or(ArrayOrNumber a, ArrayOrNumber b);
Array logical_xor(ArrayOrNumber a, ArrayOrNumber b);
Array logical_not(Operand x);
Array isfinite(Operand x);
Array isinf(Operand x);
Array isnan(Operand x);

// Returns x where the condition holds, y elsewhere. No gradient flows to the condition.
Array where(Operand condition, ArrayOrNumber x, ArrayOrNumber y);

// Combine integers bit by bit, and booleans logically: a & b, a | b, a ^ b, ~a; !a is logical_not(a).
Array bitwise_and(ArrayOrNumber a, ArrayOrNumber b);
Array bitwise_or(ArrayOrNumber a, ArrayOrNumber b);
Array bitwise_xor(ArrayOrNumber a, ArrayOrNumber b);
Array bitwise_not(Operand x);
inline Array operator&(ArrayOrNumber a, ArrayOrNumber b) { return bitwise_and(a, b); }
inline Array operator|(ArrayOrNumber a, ArrayOrNumber b) { return bitwise_or(a, b); }
inline Array operator^(ArrayOrNumber a, ArrayOrNumber b) { return bitwise_xor(a, b); }
inline Array operator~(Operand x) { return bitwise_not(x); }
inline Array operator!(Operand x) { return logical_not(x); }

// ---- functions

Array abs(Operand x);
Array sign(Operand x);
Array floor(Operand x);
Array ceil(Operand x);
Array trunc(Operand x);
Array round(Operand x, int decimals = 0);  // halves to even
Array square(Operand x);
Array reciprocal(Operand x);
Array sqrt(Operand x);
Array rsqrt(Operand x);  // 1 / sqrt(x)
Array cbrt(Operand x);
Array exp(Operand x);
Array exp2(Operand x);
Array expm1(Operand x);  // exp(x) - 1
Array log(Operand x);
Array log1p(Operand x);  // log(1 + x)
Array log2(Operand x);
Array log10(Operand x);
Array sin(Operand x);
Array cos(Operand x);
Array tan(Operand x);
Array arcsin(Operand x);
Array arccos(Operand x);
Array arctan(Operand x);
Array sinh(Operand x);
Array cosh(Operand x);
Array tanh(Operand x);
Array arcsinh(Operand x);
Array arccosh(Operand x);
Array arctanh(Operand x);
Array erf(Operand x);
Array erfc(Operand x);  // 1 - erf(x)
Array erf_inv(Operand x);
Array nan_to_num(Operand x);  // NaN becomes 0, infinities the largest finite numbers

// ---- activations

Array sigmoid(Operand x);
Array log_sigmoid(Operand x);
Array relu(Operand x);
Array leaky_relu(Operand x, double negative_slope = 0.01);
Array silu(Operand x);                    // x sigmoid(x)
Array softplus(Operand x);                // log(1 + exp(x))
Array soft_sign(Operand x);               // x / (1 + |x|)
Array elu(Operand x, double alpha = 1);   // x; below 0: alpha (exp(x) - 1)
Array celu(Operand x, double alpha = 1);  // x; below 0: alpha (exp(x / alpha) - 1)
Array selu(Operand x);
Array mish(Operand x);  // x tanh(softplus(x))

// Returns x Phi(x), or by default its tanh approximation, 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). Hendrycks
// and Gimpel, "Gaussian error linear units" (2016).
Array gelu(Operand x, bool approximate = true);

// ---- casts

// Casts x to another element type; a lazy initializer stays one.
Array astype(Operand x, DType dtype);

// Returns x as a constant for gradients.
Array stop_gradient(Operand x);

}  // namespace tessera
