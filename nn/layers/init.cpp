// The distributions behind the initializers' names.
#include "nn/layers/init.h"

#include <algorithm>
#include <cmath>

#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/reduce/reductions.h"
#include "sharding/operations/shape/creation.h"
#include "sharding/random/random.h"

namespace tessera::nn::init {

namespace {

struct Fans {
  double in, out;
};

Fans fans_of(const Shape& whole, int stacked) {
  const Shape shape(whole.begin() + std::min<size_t>(stacked, whole.size()), whole.end());
  if (shape.empty()) return {1, 1};
  double receptive = 1;
  for (size_t d = 0; d + 2 < shape.size(); ++d) receptive *= static_cast<double>(shape[d]);
  const double out = static_cast<double>(shape.back());
  const double in = shape.size() == 1 ? out : static_cast<double>(shape[shape.size() - 2]);
  return {in * receptive, out * receptive};
}

enum class Fan { in, average };

double variance(Fan fan, double scale, int stacked, const Shape& shape) {
  const Fans fans = fans_of(shape, stacked);
  return scale / (fan == Fan::in ? fans.in : (fans.in + fans.out) / 2);
}

Array cut_normal(double stddev, const Key& key, const Shape& shape) {
  constexpr double stddev_of_truncated = 0.87962566103423978;  // of a standard normal cut at -2 and 2
  return stddev / stddev_of_truncated * tessera::truncated_normal(key, -2, 2, shape);
}

Initializer scaled_normal(Fan fan, double scale, int stacked) {
  return [=](const Key& key, const Shape& shape) {
    return cut_normal(std::sqrt(variance(fan, scale, stacked, shape)), key, shape);
  };
}

Initializer scaled_uniform(Fan fan, double scale, int stacked) {
  return [=](const Key& key, const Shape& shape) {
    const double limit = std::sqrt(3 * variance(fan, scale, stacked, shape));
    return tessera::uniform(key, shape, -limit, limit);
  };
}

}  // namespace

Initializer zeros() { return constant(0); }
Initializer ones() { return constant(1); }

Initializer constant(double value) {
  return [value](const Key&, const Shape& shape) { return tessera::full(shape, value); };
}

Initializer normal(double stddev) {
  return [stddev](const Key& key, const Shape& shape) { return stddev * tessera::normal(key, shape); };
}

Initializer truncated_normal(double stddev) {
  return [stddev](const Key& key, const Shape& shape) { return stddev * tessera::truncated_normal(key, -2, 2, shape); };
}

Initializer uniform(double limit) {
  return [limit](const Key& key, const Shape& shape) { return tessera::uniform(key, shape, -limit, limit); };
}

Initializer lecun_normal(int num_stacked_dims) { return scaled_normal(Fan::in, 1, num_stacked_dims); }
Initializer lecun_uniform(int num_stacked_dims) { return scaled_uniform(Fan::in, 1, num_stacked_dims); }
Initializer glorot_normal(int num_stacked_dims) { return scaled_normal(Fan::average, 1, num_stacked_dims); }
Initializer glorot_uniform(int num_stacked_dims) { return scaled_uniform(Fan::average, 1, num_stacked_dims); }
Initializer he_normal(int num_stacked_dims) { return scaled_normal(Fan::in, 2, num_stacked_dims); }
Initializer he_uniform(int num_stacked_dims) { return scaled_uniform(Fan::in, 2, num_stacked_dims); }
Initializer fan_in_uniform(int num_stacked_dims) { return scaled_uniform(Fan::in, 1.0 / 3, num_stacked_dims); }

}  // namespace tessera::nn::init
