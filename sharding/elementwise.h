// Elementwise operations, broadcast as in numpy; different element types are promoted as in JAX.
#pragma once

#include "sharding/operand.h"

namespace tessera {

Array operator+(Operand a, Operand b);
Array operator-(Operand a, Operand b);
Array operator*(Operand a, Operand b);
Array operator/(Operand a, Operand b);

// A scalar is weakly typed: it takes the array's element type. Times a scalar, a recipe stays a recipe.
Array operator+(Operand a, double b);
Array operator+(double a, Operand b);
Array operator-(Operand a, double b);
Array operator-(double a, Operand b);
Array operator*(Operand a, double b);
Array operator*(double a, Operand b);
Array operator/(Operand a, double b);
Array operator-(Operand a);

Array exp(Operand x);
Array log(Operand x);
Array sqrt(Operand x);
Array rsqrt(Operand x);  // 1 / sqrt(x)
Array square(Operand x);
Array tanh(Operand x);
Array sigmoid(Operand x);
Array relu(Operand x);
Array silu(Operand x);  // x * sigmoid(x)

// jax.nn.gelu: the tanh approximation by default, 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), else x Phi(x).
// Hendrycks and Gimpel, "Gaussian error linear units" (2016).
Array gelu(Operand x, bool approximate = true);

// x in another element type. Of a recipe: a recipe.
Array astype(Operand x, DType dtype);

// x as a constant for gradients.
Array stop_gradient(Operand x);

}  // namespace tessera
