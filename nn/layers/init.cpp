// Casts of a DTypePolicy, and distributions of the initializers.
#include "nn/layers/init.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "sharding/base/fail.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/reduce/reductions.h"
#include "sharding/operations/shape/creation.h"
#include "sharding/random/random.h"

namespace tessera::nn {

namespace {

Array cast_to(const Array& x, DType dtype, const char* what) {
  if (!is_floating(dtype))
    fail(ErrorKind::dtype_mismatch, "DTypePolicy", "{} = {} given, expected a floating type.", what, name_of(dtype));
  return x.is_absent() || x.dtype() == dtype || !is_floating(x.dtype()) ? x : astype(x, dtype);
}

}  // namespace

Array DTypePolicy::param(const Array& x) const { return cast_to(x, params, "params"); }
Array DTypePolicy::in(const Array& x) const { return compute ? cast_to(x, *compute, "compute") : x; }
Array DTypePolicy::out(const Array& y) const { return output ? cast_to(y, *output, "output") : y; }

namespace init {

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
  constexpr double stddev_of_truncated = 0.87962566103423978;  // for a standard normal truncated at -2 and 2
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

Initializer orthogonal(double scale) {
  return [scale](const Key& key, const Shape& shape) {
    const int64_t size = c10::multiply_integers(shape);
    if (size == 0) return tessera::zeros(shape);
    const int64_t columns = shape.empty() ? 1 : shape.back(), rows = size / columns;
    const at::Tensor draw = to_tensor(tessera::normal(key, {std::max(rows, columns), std::min(rows, columns)}));
    const auto [q, r] = at::linalg_qr(draw);
    const at::Tensor signed_q = scale * q * r.diagonal().sign();
    return from_tensor((columns > rows ? signed_q.t() : signed_q).reshape(shape).contiguous());
  };
}

}  // namespace init
}  // namespace tessera::nn
