// DTypePolicy and initializers: the element types and the initial values of a layer's parameters.
#pragma once

#include <functional>
#include <optional>

#include "sharding/array/array.h"
#include "sharding/operations/operand.h"
#include "sharding/random/key.h"

namespace tessera::nn {

// Element types of a layer. A layer with parameters and its options have the field `dtypes`. Unset types follow JAX:
// operands are promoted to a common type, and the result has the type in which it was computed. The fields correspond
// to jmp.Policy's (param_dtype, compute_dtype, output_dtype) and Flax's (param_dtype, dtype).
//   nn::Linear::init(key, embed, hidden, {.dtypes = {.compute = bfloat16, .output = float32}})
// To cast a complete model, call nn::cast (nn/transformations/cast.h) in the loss function, which has the effect of
// `compute`.
struct DTypePolicy {
  DType params = float32;                       // element type of the parameters that init makes
  std::optional<DType> compute = std::nullopt;  // inputs and parameters are cast to it
  std::optional<DType> output = std::nullopt;   // the result is cast to it

  // Casts a new parameter to `params`; a lazy initializer stays lazy. param, in and out throw Error (dtype_mismatch) if
  // the given type is not floating.
  Array param(const Array& x) const;
  // Casts an input or a parameter to `compute` (`in`), or a result to `output` (`out`). Integers are unchanged.
  Array in(const Array& x) const;
  Array out(const Array& y) const;
};

// Function that returns the initial values of a parameter. A kernel's shape is (in, out), a convolution's (spatial...,
// in, out). Its fan in is the product of all sizes except the last, its fan out of all except the second to last. Both
// are the size of a vector.
using Initializer = std::function<Array(const Key&, const Shape&)>;

// Initializers with the names and formulas of jax.nn.initializers (flax.linen.initializers are the same). All except
// orthogonal return lazy initializers, which take no memory until they are placed, shard by shard.
namespace init {

Initializer zeros();                 // 0 everywhere
Initializer ones();                  // 1 everywhere
Initializer constant(double value);  // `value` everywhere
// Draws from the normal distribution with mean 0 and standard deviation `stddev`. truncated_normal truncates it at +-2
// stddev without rescaling.
Initializer normal(double stddev);
Initializer truncated_normal(double stddev);
// Draws from the uniform distribution in [-limit, limit).
Initializer uniform(double limit);

// Distributions with variance 1 / fan in (lecun), 2 / (fan in + fan out) (glorot), 2 / fan in (he). The normal
// distributions are truncated at two standard deviations. The first `num_stacked_dims` dimensions number separate
// kernels (jax's batch_axis): use 1 for the shape (experts, in, out). LeCun et al., "Efficient BackProp" (1998;
// Klambauer et al., 2017); Glorot and Bengio (2010); He et al. (2015), called Kaiming in PyTorch.
Initializer lecun_normal(int num_stacked_dims = 0);  // flax.linen's default for kernels
Initializer lecun_uniform(int num_stacked_dims = 0);
Initializer glorot_normal(int num_stacked_dims = 0);
Initializer glorot_uniform(int num_stacked_dims = 0);
Initializer he_normal(int num_stacked_dims = 0);
Initializer he_uniform(int num_stacked_dims = 0);

// Draws from the uniform distribution in +-1 / sqrt(fan in). This is the default of Equinox and PyTorch for kernels
// and, with the kernel's fan in, for biases.
Initializer fan_in_uniform(int num_stacked_dims = 0);

// Returns Q of the QR decomposition of a normal matrix, as jax.nn.initializers.orthogonal. Its rows are all dimensions
// except the last, its columns the last dimension. The columns are orthonormal, or the rows if there are fewer of them.
// Saxe, McClelland and Ganguli (2014). Not lazy: no shard of it can be drawn alone, so it is computed immediately.
Initializer orthogonal(double scale = 1);

}  // namespace init
}  // namespace tessera::nn
