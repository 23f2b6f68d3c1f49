// Computes clipping factors and norms of units.
#include "optim/formulas/clipping.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/div.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>

#include "nn/tree/filter.h"
#include "optim/formulas/global_norm.h"
#include "optim/formulas/scaling.h"
#include "optim/schedules/check_options.h"
#include "optim/transform/internal.h"
#include "sharding/base/fail.h"
#include "sharding/kernels/staging_pool.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/reduce/reductions.h"

namespace tessera::optim {

namespace detail {

namespace {

// Returns 1 if the length is below max_norm, else their quotient.
Array clip_factor(const Array& length, double max_norm) {
  static auto* kept = new tessera::detail::StagingPool;
  const tessera::detail::ArrayImpl& of = tessera::detail::materialized(length, "clip_by_global_norm");
  tessera::detail::Tensors local;
  for (const at::Tensor& t : of.local) {
    at::Tensor factor = kept->get({}, t.options());
    local.push_back(at::div_out(factor, at::scalar_tensor(max_norm, t.scalar_type()), t).clamp_max_(1));
  }
  return Array(tessera::detail::make_array(of.type, of.slots, std::move(local)));
}

}  // namespace

DeviceScalar clip_by_global_norm(const Arrays& updates, double max_norm) {
  at::AutoGradMode off(false);
  check_constant("clip_by_global_norm", updates);
  const Array length = global_norm(updates);
  if (is_on_accelerator(length)) {
    scale(updates, clip_factor(length, max_norm));
    return DeviceScalar(length);
  }
  const std::optional<double> known = known_value(length);
  const DeviceScalar norm = known ? DeviceScalar(*known) : DeviceScalar(length);
  if (!(norm < max_norm)) scale(updates, max_norm / norm);  // true for a NaN and on an abstract mesh
  return norm;
}

void make_flags(const nn::Leaves& params, std::map<std::string, Array>& found) {
  for (const nn::Leaf& p : params) {
    if (nn::is_trainable(p)) found[p.path] = zeros_on_mesh_of(*p.value, {}, DType::boolean);
  }
}

void zero_nans(const nn::Leaves& updates, std::map<std::string, Array>& found) {
  at::AutoGradMode off(false);
  check_constant("zero_nans", updates);
  for (const nn::Leaf& leaf : updates) {
    Array& u = *leaf.value;
    if (u.is_absent()) continue;
    const Array wrong = isnan(u);
    found[leaf.path] = any(wrong);
    u = where(wrong, 0.0, u);
  }
}

}  // namespace detail

Array Clip::operator()(const ArrayStep& step) const { return tessera::clip(step.gradient, -max_delta, max_delta); }
PerArray<Clip> clip(double max_delta) {
  detail::check_options("clip", {}, {{"max_delta", max_delta}});
  return {Clip{max_delta}};
}

Array ClipByBlockRms::operator()(const ArrayStep& step) const {
  return step.gradient / maximum(sqrt(mean(square(step.gradient))) / threshold, 1.0);
}
PerArray<ClipByBlockRms> clip_by_block_rms(double threshold) {
  detail::check_positive("clip_by_block_rms", "threshold", threshold);
  return {ClipByBlockRms{threshold}};
}

ClipByGlobalNorm clip_by_global_norm(double max_norm) {
  if (!(max_norm > 0))
    fail(ErrorKind::invalid_argument, "clip_by_global_norm", "max_norm {} given, expected above 0.", max_norm);
  return {{}, max_norm};
}

namespace {

// Returns the dimensions of a unit, by the layers' conventions; empty for all dimensions.
Dims unit_dims(const nn::Leaf& parameter) {
  const Shape& shape = parameter.value->shape();
  const auto n = static_cast<int>(shape.size());
  if (std::count_if(shape.begin(), shape.end(), [](int64_t size) { return size != 1; }) <= 1) return {};
  if (n > 5)
    fail(ErrorKind::invalid_argument, AdaptiveGradClip::name, "{}: {} dims given, expected at most five, or `dims`.",
         parameter.path, n);
  Dims dims = {0};
  for (int d = 1; n > 3 && d + 1 < n; ++d) dims.push_back(d);
  return dims;
}

void check_dims(const Dims& dims, const nn::Leaf& parameter) {
  const int n = parameter.value->ndim();
  for (int d : dims)
    if (d < -n || d >= n)
      fail(ErrorKind::invalid_argument, AdaptiveGradClip::name,
           "{}: dim {} given for {}, expected one of its {} dims. Mask it out, with masked.", parameter.path, d,
           parameter.value->type_string(), n);
}

// Returns the norm of every unit; reduced dimensions have size one.
Array unit_norms(const Array& x, const Dims& dims) { return sqrt(sum(square(x), dims, true)); }

}  // namespace

Array AdaptiveGradClip::operator()(const ArrayStep& step) const {
  const Array& g = step.gradient;
  if (dims) check_dims(*dims, step.parameter);
  const Dims along = dims ? *dims : unit_dims(step.parameter);
  const Array length = unit_norms(g, along);
  const Array bound = clipping * maximum(unit_norms(astype(step.p(), g.dtype()), along), eps);
  return where(length < bound, g, g * (bound / maximum(length, 1e-6)));
}
PerArray<AdaptiveGradClip> adaptive_grad_clip(double clipping, double eps, std::optional<Dims> dims) {
  detail::check_positive("adaptive_grad_clip", "clipping", clipping);
  detail::check_options("adaptive_grad_clip", {}, {{"eps", eps}});
  if (dims && dims->empty())
    fail(ErrorKind::invalid_argument, "adaptive_grad_clip", "dims: none given, expected one or more, or no `dims`.");
  return {AdaptiveGradClip{clipping, eps, std::move(dims)}};
}

}  // namespace tessera::optim
