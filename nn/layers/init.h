// Initializers: functions that make the initial values of a parameter from a key and a shape.
#pragma once

#include <functional>

#include "sharding/array/array.h"
#include "sharding/random/key.h"

namespace tessera::nn {

// Makes the initial values of a parameter. A kernel's shape is (in, out), of a convolution (spatial dims..., in, out):
// its fan in is the product of all sizes but the last, its fan out of all but the second to last; of a vector, both are
// its size.
using Initializer = std::function<Array(const Key&, const Shape&)>;

// The names and formulas of jax.nn.initializers (flax.linen.initializers are the same). All but orthogonal return
// recipes, which take no memory until they are placed, shard by shard.
namespace init {

Initializer zeros();                 // 0 everywhere
Initializer ones();                  // 1 everywhere
Initializer constant(double value);  // `value` everywhere
// Normal with mean 0 and standard deviation `stddev`; truncated_normal cuts it off at +-2 stddev without rescaling.
Initializer normal(double stddev);
Initializer truncated_normal(double stddev);
// Uniform in [-limit, limit).
Initializer uniform(double limit);

// The variance is 1 / fan in (lecun), 2 / (fan in + fan out) (glorot), 2 / fan in (he). The normal ones are truncated
// at two standard deviations. The first `num_stacked_dims` dims number separate kernels (jax's batch_axis): 1 for the
// shape (experts, in, out).
// LeCun et al., "Efficient BackProp" (1998; Klambauer et al., 2017); Glorot and Bengio (2010); He et al. (2015), whom
// PyTorch calls Kaiming.
Initializer lecun_normal(int num_stacked_dims = 0);  // flax.linen's default for kernels
Initializer lecun_uniform(int num_stacked_dims = 0);
Initializer glorot_normal(int num_stacked_dims = 0);
Initializer glorot_uniform(int num_stacked_dims = 0);
Initializer he_normal(int num_stacked_dims = 0);
Initializer he_uniform(int num_stacked_dims = 0);

// Uniform in +-1 / sqrt(fan in): Equinox's and PyTorch's default for kernels (and, with the kernel's fan in, biases).
Initializer fan_in_uniform(int num_stacked_dims = 0);

// jax.nn.initializers.orthogonal: the Q of a normal matrix (all dims but the last, last dim), with orthonormal columns,
// or rows if those are fewer. Saxe, McClelland and Ganguli (2014). It is not a recipe but computed at once, since no
// shard of it can be drawn alone.
Initializer orthogonal(double scale = 1);

}  // namespace init
}  // namespace tessera::nn
