// The distributions behind the initializers' names.
#include "nn/init.h"

#include <cmath>

#include "sharding/operations.h"
#include "sharding/random.h"

namespace tessera::nn::init {

Initializer zeros() {
  return [](const Key&, const Shape& shape) { return tessera::zeros(shape); };
}

Initializer ones() {
  return [](const Key&, const Shape& shape) { return tessera::ones(shape); };
}

Initializer normal(double stddev) {
  return [stddev](const Key& key, const Shape& shape) { return stddev * tessera::normal(key, shape); };
}

Initializer lecun_normal() {
  return [](const Key& key, const Shape& shape) {
    constexpr double stddev_of_truncated = 0.87962566103423978;  // of a standard normal cut at -2 and 2
    const double stddev = std::sqrt(1.0 / static_cast<double>(shape.at(0))) / stddev_of_truncated;
    return stddev * truncated_normal(key, -2, 2, shape);
  };
}

}  // namespace tessera::nn::init
