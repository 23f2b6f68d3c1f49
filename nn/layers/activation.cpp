// Implements Activation, PReLU and Dropout.
#include "nn/layers/activation.h"

#include <cmath>

#include "nn/layers/shapes.h"
#include "sharding/base/caller.h"
#include "sharding/base/fail.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/shape/creation.h"
#include "sharding/random/random.h"

namespace tessera::nn {

Array Activation::operator()(Operand x) const {
  switch (function) {
    case identity:
      return x.array();
    case relu:
      return tessera::relu(x);
    case gelu:
      return tessera::gelu(x);
    case gelu_exact:
      return tessera::gelu(x, false);
    case silu:
      return tessera::silu(x);
    case tanh:
      return tessera::tanh(x);
    case sigmoid:
      return tessera::sigmoid(x);
    case softplus:
      return tessera::softplus(x);
    case elu:
      return tessera::elu(x);
    case leaky_relu:
      return tessera::leaky_relu(x);
    case selu:
      return tessera::selu(x);
  }
  fail(ErrorKind::invalid_argument, "Activation", "no function of that number, expected one of Activation::Function.");
}

namespace {

void check_slope(double slope) {
  if (!std::isfinite(slope)) fail(ErrorKind::invalid_argument, "PReLU", "slope = {}, expected a finite number.", slope);
}

}  // namespace

PReLU PReLU::init(const PReLUOptions& options) {
  check_slope(options.slope);
  return {.slope = {options.dtypes.param(full({}, options.slope)), {}}, .dtypes = options.dtypes};
}

PReLU PReLU::init(const Axis& features, const PReLUOptions& options) {
  check_axis("PReLU", features);
  check_slope(options.slope);
  return {.slope = {options.dtypes.param(full({features.size}, options.slope)), {features}}, .dtypes = options.dtypes};
}

Array PReLU::operator()(Operand x) const {
  const LayerScope scope(*this, x);
  check_features("PReLU", x.array(), slope);
  const Array in = dtypes.in(x.array());
  return dtypes.out(where(in >= 0, in, dtypes.in(slope)*in));
}

Array Dropout::operator()(Operand x, const std::optional<Key>& key) const {
  const CallerScope caller(x.where());
  if (!is_active()) return x.array();
  if (!key)
    fail(ErrorKind::invalid_argument, "Dropout",
         "no key given, expected one: dropout(x, key). For evaluation set inference = true.");
  return dropout(*key, x, rate);
}

}  // namespace tessera::nn
