// Initializers: from a key and a shape to a recipe.
#pragma once

#include <functional>

#include "sharding/array.h"
#include "sharding/key.h"

namespace tessera::nn {

// Makes the values of a parameter; a kernel's shape is (in, out).
using Initializer = std::function<Array(const Key&, const Shape&)>;

namespace init {

Initializer zeros();
Initializer ones();
// Normal with this standard deviation and mean 0.
Initializer normal(double stddev);
// flax.linen.initializers.lecun_normal: truncated at two standard deviations, variance 1 / in.
// Klambauer et al., "Self-normalizing neural networks" (2017).
Initializer lecun_normal();

}  // namespace init
}  // namespace tessera::nn
