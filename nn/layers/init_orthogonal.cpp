// The orthogonal initializer: a QR decomposition, with signs that make it uniform.
#include <ATen/ATen.h>

#include "nn/layers/init.h"
#include "sharding/operations/shape/creation.h"
#include "sharding/random/random.h"

namespace tessera::nn::init {

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

}  // namespace tessera::nn::init
