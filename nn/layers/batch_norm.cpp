// Implements BatchNorm with the batch's statistics and with the running statistics.
#include "nn/layers/batch_norm.h"

#include <algorithm>

#include "nn/layers/shapes.h"
#include "sharding/base/fail.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/shape/creation.h"
#include "sharding/redistribution/device_put.h"

namespace tessera::nn {

namespace {

// Throws if the batch is empty: its statistics would turn the running statistics into NaN permanently.
void check_not_empty(const Array& x) {
  const Shape& shape = x.shape();
  if (std::find(shape.begin(), shape.end() - 1, 0) == shape.end() - 1) return;
  fail(ErrorKind::invalid_argument, "BatchNorm",
       "given {}, expected one row or more to take statistics of. Leave the empty batch out, or set inference = true.",
       x.type_string());
}

void check_numbers(double momentum, double eps) {
  check_eps("BatchNorm", eps);
  if (!(momentum >= 0 && momentum <= 1))
    fail(ErrorKind::invalid_argument, "BatchNorm", "momentum = {}, expected 0 (the last batch's statistics) to 1.",
         momentum);
}

void check_all_there(const BatchNorm& norm) {
  for (const auto& [name, array] : {std::pair<const char*, const Array&>("scale", norm.scale),
                                    {"bias", norm.bias},
                                    {"mean", norm.mean},
                                    {"variance", norm.variance}})
    check_there("BatchNorm", name, array);
}

// Returns the reduced sum, placed like `like`.
Array finished(const Array& sum, const Array& like) {
  return sum.is_committed() && like.is_committed() ? with_sharding_constraint(sum, like.sharding()) : sum;
}

Array moved(const Array& running, const Array& batch, double momentum) {
  return momentum * running + (1 - momentum) * stop_gradient(astype(finished(batch, running), running.dtype()));
}

}  // namespace

BatchNorm BatchNorm::init(const Axis& features, const BatchNormOptions& options) {
  check_axis("BatchNorm", features);
  check_numbers(options.momentum, options.eps);
  const auto param = [&](double value) {
    return Param{options.dtypes.param(full({features.size}, value)), {features}};
  };
  const auto statistic = [&](double value) { return Buffer{full({features.size}, value), {features}}; };
  return {.scale = param(1),
          .bias = param(0),
          .mean = statistic(0),
          .variance = statistic(1),
          .momentum = options.momentum,
          .eps = options.eps,
          .dtypes = options.dtypes};
}

Array BatchNorm::operator()(Operand x) {
  const LayerScope scope(*this, x);
  check_numbers(momentum, eps);
  check_all_there(*this);
  check_features("BatchNorm", x.array(), scale);
  if (x.array().ndim() < 2)
    fail(ErrorKind::shape_mismatch, "BatchNorm", "given {}, expected (batch..., features).", x.array().type_string());
  check_floating("BatchNorm", x.array());
  if (!inference) check_not_empty(x.array());
  const Array in = dtypes.in(x.array());
  const Array wide = astype(in, promote(in.dtype(), float32));
  Array center = mean, spread = variance, next_mean = mean, next_variance = variance;
  if (!inference) {
    const Dims others = tessera::detail::consecutive_dims(in.ndim() - 1);
    center = finished(tessera::mean(wide, others), mean);
    spread = finished(tessera::mean(square(wide - center), others), variance);
    next_mean = moved(mean, center, momentum);
    next_variance = moved(variance, spread, momentum);
  }
  const Array normal = astype((wide - center) * rsqrt(spread + eps), in.dtype());
  const Array result = dtypes.out(normal * dtypes.in(scale) + dtypes.in(bias));
  mean.value = next_mean, variance.value = next_variance;  // assigned last, so that an error leaves both unchanged
  return result;
}

}  // namespace tessera::nn
