// Initializers: from a key and a shape to a recipe.
#pragma once

#include <functional>

#include "sharding/array/array.h"
#include "sharding/random/key.h"

namespace tessera::nn {

// Makes the values of a parameter. A kernel's shape is (in, out), of a convolution (spatial dims..., in, out): its fan
// in is the product of all sizes but the last, its fan out of all but the last but one. A vector has its size as both.
using Initializer = std::function<Array(const Key&, const Shape&)>;

// The names and formulas of jax.nn.initializers (flax.linen.initializers are the same). All but orthogonal give
// recipes: no memory until they are placed, slice by slice.
namespace init {

Initializer zeros();                 // 0 everywhere
Initializer ones();                  // 1 everywhere
Initializer constant(double value);  // `value` everywhere
// Normal with this standard deviation and mean 0; cut off at two of them (before which it has them): truncated_normal.
Initializer normal(double stddev);
Initializer truncated_normal(double stddev);
// Uniform in [-limit, limit).
Initializer uniform(double limit);

// Variance 1 / fan in, 2 / (fan in + fan out), 2 / fan in. `normal` ones are truncated at two standard deviations. The
// first `stacked` dims count as so many kernels, one for each index (jax's batch_axis): of (experts, in, out) 1.
// LeCun et al., "Efficient BackProp" (1998; Klambauer et al., 2017); Glorot and Bengio (2010); He et al. (2015), whom
// PyTorch calls Kaiming.
Initializer lecun_normal(int stacked = 0);  // flax.linen's default for kernels
Initializer lecun_uniform(int stacked = 0);
Initializer glorot_normal(int stacked = 0);
Initializer glorot_uniform(int stacked = 0);
Initializer he_normal(int stacked = 0);
Initializer he_uniform(int stacked = 0);

// Uniform in +-1 / sqrt(fan in): Equinox's and PyTorch's default for kernels (and, with the kernel's fan in, biases).
Initializer fan_in_uniform(int stacked = 0);

// jax.nn.initializers.orthogonal: the Q of a normal matrix, its columns (or rows, whichever are fewer) orthonormal, as
// (all dims but the last, last dim). Saxe, McClelland and Ganguli (2014). Computed at once and as a whole, since no
// block of it can be drawn alone.
Initializer orthogonal(double scale = 1);

}  // namespace init
}  // namespace tessera::nn
