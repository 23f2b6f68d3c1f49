// Implements LayerNorm, RMSNorm and GroupNorm.
#include "nn/layers/norm.h"

#include "nn/layers/shapes.h"
#include "sharding/base/fail.h"
#include "sharding/operations/neural/normalization.h"
#include "sharding/operations/reduce/reductions.h"
#include "sharding/operations/shape/creation.h"
#include "sharding/operations/shape/shapes.h"

namespace tessera::nn {

namespace {

Param all_of(const char* layer, double value, const Axis& axis, const DTypePolicy& dtypes) {
  check_axis(layer, axis);
  return {dtypes.param(full({axis.size}, value)), {axis}};
}

}  // namespace

LayerNorm LayerNorm::init(const Axis& axis, double eps, const DTypePolicy& dtypes) {
  check_eps("LayerNorm", eps);
  return {.scale = all_of("LayerNorm", 1, axis, dtypes),
          .bias = all_of("LayerNorm", 0, axis, dtypes),
          .eps = eps,
          .dtypes = dtypes};
}

Array LayerNorm::operator()(Operand x) const {
  const LayerScope scope(*this, x);
  check_eps("LayerNorm", eps);
  check_features("LayerNorm", x.array(), scale);
  const Array in = dtypes.in(x.array());
  return dtypes.out(layer_norm({in, x.where()}, dtypes.in(scale), dtypes.in(bias), eps));
}

RMSNorm RMSNorm::init(const Axis& axis, double eps, const DTypePolicy& dtypes) {
  check_eps("RMSNorm", eps);
  return {.scale = all_of("RMSNorm", 1, axis, dtypes), .eps = eps, .dtypes = dtypes};
}

Array RMSNorm::operator()(Operand x) const {
  const LayerScope scope(*this, x);
  check_eps("RMSNorm", eps);
  check_features("RMSNorm", x.array(), scale);
  const Array in = dtypes.in(x.array());
  if (offset == 0) return dtypes.out(rms_norm({in, x.where()}, dtypes.in(scale), eps));
  const Array wide = astype(scale.value, promote(scale.value.dtype(), float32));
  return dtypes.out(astype(rms_norm({in, x.where()}, wide + offset, eps), in.dtype()));
}

GroupNorm GroupNorm::init(const Axis& features, int64_t groups, double eps, const DTypePolicy& dtypes) {
  if (groups < 1 || features.size % groups)
    fail(ErrorKind::invalid_argument, "GroupNorm",
         "axis \"{}\" = {} is not divisible by {} groups. Change one of them.", features.name, features.size, groups);
  check_eps("GroupNorm", eps);
  return {.scale = all_of("GroupNorm", 1, features, dtypes),
          .bias = all_of("GroupNorm", 0, features, dtypes),
          .groups = groups,
          .eps = eps,
          .dtypes = dtypes};
}

Array GroupNorm::operator()(Operand x) const {
  const LayerScope scope(*this, x);
  check_eps("GroupNorm", eps);
  check_features("GroupNorm", x.array(), scale);
  if (x.array().ndim() < 2)
    fail(ErrorKind::shape_mismatch, "GroupNorm", "given {}, expected (batch, spatial dims..., features).",
         x.array().type_string());
  check_divisor("GroupNorm", "groups", groups, x.array().shape(-1));
  check_floating("GroupNorm", x.array());
  const Array in = dtypes.in(x.array());
  Shape shape = in.shape();
  const int64_t features = shape.back();
  shape.back() = groups;
  shape.push_back(features / groups);
  Dims places{-1};
  for (int d = 1; d + 2 < static_cast<int>(shape.size()); ++d) places.push_back(d);
  const Array wide = reshape(astype(in, promote(in.dtype(), float32)), shape);
  const Array centered = wide - mean(wide, places, true);
  const Array normal = centered * rsqrt(mean(square(centered), places, true) + eps);
  const Array y = astype(reshape(normal, in.shape()), in.dtype());
  return dtypes.out(y * dtypes.in(scale) + dtypes.in(bias));
}

}  // namespace tessera::nn
