// Scaling transforms: in bulk if one factor applies to all arrays, otherwise array by array.
#include "optim/formulas/scaling.h"

#include <ATen/core/grad_mode.h>

#include <cmath>
#include <map>

#include "optim/formulas/global_norm.h"
#include "optim/schedules/check_options.h"
#include "optim/transform/internal.h"
#include "sharding/array/ownership.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/reduce/reductions.h"
#include "sharding/random/random.h"
#include "sharding/redistribution/device_put.h"
#include "sharding/runtime/graph.h"

namespace tessera::optim {

namespace detail {

using namespace tessera::detail;

namespace {

// Multiplies in place with the rounding of at::_foreach_mul. On the CPU, at::_foreach_mul_ would round the number first
// for tensors of half precision.
void scale_in_place(const std::vector<at::Tensor>& tensors, const at::Tensor& factor) {
  at::_foreach_mul_(tensors, factor);
}
void scale_in_place(std::vector<at::Tensor> tensors, double factor) {
  std::erase_if(tensors, [factor](const at::Tensor& t) {
    const bool is_half = t.is_cpu() && at::isReducedFloatingType(t.scalar_type());
    if (is_half) t.copy_(at::_foreach_mul({t}, factor)[0]);
    return is_half;
  });
  if (!tensors.empty()) at::_foreach_mul_(tensors, factor);
}

// Scales all blocks of all arrays in one call. It is in place if the array is the only owner of its memory, otherwise
// into new memory.
template <class Factor>
void scale_all(const Arrays& updates, const Factor& factor) {
  at::AutoGradMode off(false);
  check_constant("scale", updates);
  struct Blocks {
    Arrays arrays;
    std::vector<at::Tensor> tensors;
  };
  Blocks own[2], shared[2];  // [1]: blocks without data (on stages of other processes, or abstract)
  for (Array* u : updates) {
    if (u->is_absent()) continue;
    const Tensors& local = materialized(*u, "scale").local;
    Blocks& blocks = (is_sole_owner(*u) ? own : shared)[local[0].is_meta()];
    blocks.arrays.push_back(u);
    blocks.tensors.insert(blocks.tensors.end(), local.begin(), local.end());
  }
  for (Blocks& blocks : own)
    if (!blocks.tensors.empty()) scale_in_place(std::move(blocks.tensors), factor);
  for (Blocks& blocks : shared) {
    if (blocks.tensors.empty()) continue;
    const std::vector<at::Tensor> made_of = at::_foreach_mul(blocks.tensors, factor);
    auto next = made_of.begin();
    for (Array* u : blocks.arrays) {
      const ArrayImpl& a = *u->impl();
      ArrayPtr made = make_array(a.type, a.slots, Tensors(next, next + static_cast<ptrdiff_t>(a.local.size())));
      next += static_cast<ptrdiff_t>(a.local.size());
      copy_facts(a, *made);
      *u = Array(std::move(made));
    }
  }
}

// Groups updates that one bulk call of LibTorch accepts.
std::map<std::pair<at::ScalarType, c10::DeviceType>, Arrays> by_kind(const Arrays& updates) {
  std::map<std::pair<at::ScalarType, c10::DeviceType>, Arrays> result;
  for (Array* u : updates)
    if (!u->is_absent()) {
      const at::Tensor& t = materialized(*u, "scale").local[0];
      result[{t.scalar_type(), t.device().type()}].push_back(u);
    }
  return result;
}

const at::Tensor& first_of(const Arrays& arrays) { return arrays[0]->impl()->local[0]; }

}  // namespace

void scale(const Arrays& updates, double factor) { scale_all(updates, factor); }

void scale(const Arrays& updates, const Array& factor) {
  for (const auto& [kind, arrays] : by_kind(updates))
    scale_all(arrays, materialized(factor, "scale").local[0].to(first_of(arrays).options()));
}

void scale(const Arrays& updates, const ScalarSource& factor) {
  if (!host_work() || !factor.at) return scale(updates, factor.now);
  for (const auto& [kind, arrays] : by_kind(updates)) {
    const auto wide = kind.first == at::kDouble ? at::kDouble : at::kFloat;
    scale_all(arrays, host_work()->anew([at = factor.at] { return at(0); }, wide));
  }
}

void add_decayed_weights(const nn::Leaves& updates, const nn::Leaves& params, double weight_decay, const Mask& mask,
                         bool cautious) {
  at::AutoGradMode off(false);
  check_same_tree("add_decayed_weights", "the update", updates, params);
  for (size_t i = 0; i < updates.size() && weight_decay != 0; ++i) {
    Array &u = *updates[i].value, &p = *params[i].value;
    if (u.is_absent() || !mask(params[i])) continue;
    const Array q = astype(p, u.dtype());
    u = u + weight_decay * (cautious ? where(u * q >= 0.0, q, 0.0) : q);
  }
}

void add_noise(const nn::Leaves& updates, const Key& key, double deviation) {
  at::AutoGradMode off(false);
  check_constant("add_noise", updates);
  int64_t present = 0;
  for (const nn::Leaf& u : updates) present += !u.value->is_absent();
  const std::vector<Key> keys = split(key, present);
  auto next = keys.begin();
  for (const nn::Leaf& leaf : updates) {
    Array& u = *leaf.value;
    if (u.is_absent()) continue;
    const Array noise = normal(*next++, u.shape(), u.dtype());
    u = u + deviation * (u.is_committed() ? device_put(noise, resting_place(u)) : noise);
  }
}

void normalize(const Arrays& updates, double scale_factor, double eps) {
  at::AutoGradMode off(false);
  check_constant("normalize_by_update_norm", updates);
  const Array divisor = (global_norm(updates) + eps) / scale_factor;
  for (Array* u : updates)
    if (!u->is_absent()) *u = *u / astype(divisor, u->dtype());
}

}  // namespace detail

Scale scale(double step_size) {
  detail::check_finite("scale", "step_size", step_size);
  return {{}, step_size};
}

namespace {

// Returns value(0), with the function to compute it again unless the schedule is constant. Counts the update.
detail::ScalarSource counted(const Schedule& schedule, std::function<double(int64_t back)> value,
                             ScaleByScheduleState& state, const detail::UpdateStep& step) {
  const double now = value(0);
  step.count(state.count);
  return {now, schedule.constant() ? nullptr : std::move(value)};
}

}  // namespace

detail::ScalarSource ScaleBySchedule::factor(ScaleByScheduleState& state, const detail::UpdateStep& step) const {
  if (!step_size_fn.constant()) step.read_counts();
  const auto value = [this, &state](int64_t back) {
    return detail::value_of(step_size_fn, state.count - back, "scale_by_schedule", "step_size_fn");
  };
  return counted(step_size_fn, value, state, step);
}
ScaleBySchedule scale_by_schedule(Schedule step_size_fn) {
  detail::check_rate("scale_by_schedule", "step_size_fn", step_size_fn);
  return {{}, std::move(step_size_fn)};
}

detail::ScalarSource ScaleByLearningRate::factor(ScaleByScheduleState& state, const detail::UpdateStep& step) const {
  const auto rate = [this, &state](int64_t back) {
    return detail::value_of(learning_rate, state.count - back, "scale_by_learning_rate", "learning_rate");
  };
  step.report_learning_rate([rate] { return rate(0); });
  const double sign = flip_sign ? -1 : 1;
  return counted(
      learning_rate, [rate, sign](int64_t back) { return sign * rate(back); }, state, step);
}
ScaleByLearningRate scale_by_learning_rate(Schedule rate, bool flip_sign) {
  detail::check_rate("scale_by_learning_rate", "learning_rate", rate);
  return {{}, std::move(rate), flip_sign};
}

double AddDecayedWeights::value(int64_t count) const {
  if (!weight_decay.constant())
    detail::refuse_in_recording("Optimizer.update", "a weight_decay that is a schedule, not a number, is used");
  return detail::value_of(weight_decay, count, "add_decayed_weights", "weight_decay");
}
AddDecayedWeights add_decayed_weights(Schedule weight_decay, Mask mask, bool cautious) {
  detail::check_rate("add_decayed_weights", "weight_decay", weight_decay);
  return {{}, std::move(weight_decay), std::move(mask), cautious};
}

Array Trace::operator()(const ArrayStep& step) const {
  Array& trace = step.state[0];
  trace = step.gradient + decay * trace;
  return nesterov ? step.gradient + decay * trace : trace;
}
PerArray<Trace> trace(const Trace& o) {
  detail::check_options(o.name, {{"decay", o.decay}}, {});
  return {o};
}

Array Ema::operator()(const ArrayStep& step) const {
  Array& average = step.state[0];
  average = detail::moment(average, step.gradient, decay);
  return debias ? detail::unbiased(average, decay, step.count) : average;
}
PerArray<Ema> ema(const Ema& o) {
  detail::check_options(o.name, {{"decay", o.decay}}, {});
  return {o};
}

Array ScaleBySign::operator()(const ArrayStep& step) const { return sign(step.gradient); }

Array ScaleByTrustRatio::operator()(const ArrayStep& step) const {
  const Array size = maximum(norm(astype(step.p(), step.gradient.dtype())), min_norm);
  const Array length = maximum(norm(step.gradient), min_norm);
  const Array ratio = trust_coefficient * size / (length + eps);
  return step.gradient * where(logical_or(equal(size, 0.0), equal(length, 0.0)), 1.0, ratio);
}
PerArray<ScaleByTrustRatio> scale_by_trust_ratio(const ScaleByTrustRatio& o) {
  detail::check_options(o.name, {}, {{"min_norm", o.min_norm}, {"eps", o.eps}});
  detail::check_finite(o.name, "trust_coefficient", o.trust_coefficient);
  return {o};
}

Array ScaleByParamBlockRms::operator()(const ArrayStep& step) const {
  return step.gradient * maximum(sqrt(mean(square(astype(step.p(), step.gradient.dtype())))), min_scale);
}
PerArray<ScaleByParamBlockRms> scale_by_param_block_rms(double min_scale) {
  detail::check_options(ScaleByParamBlockRms::name, {}, {{"min_scale", min_scale}});
  return {ScaleByParamBlockRms{min_scale}};
}

Array ScaleByParamBlockNorm::operator()(const ArrayStep& step) const {
  return step.gradient * maximum(norm(astype(step.p(), step.gradient.dtype())), min_scale);
}
PerArray<ScaleByParamBlockNorm> scale_by_param_block_norm(double min_scale) {
  detail::check_options(ScaleByParamBlockNorm::name, {}, {{"min_scale", min_scale}});
  return {ScaleByParamBlockNorm{min_scale}};
}

Array Centralize::operator()(const ArrayStep& step) const {
  const Array& g = step.gradient;
  if (g.ndim() < 2) return g;
  Dims dims;
  for (int d = 1; d < g.ndim(); ++d) dims.push_back(d);
  return g - mean(g, dims, true);
}

Array KeepParamsNonnegative::operator()(const ArrayStep& step) const {
  const Array p = astype(step.p(), step.gradient.dtype());
  return where(p + step.gradient < 0.0, -p, step.gradient);
}

Array ApplyEvery::operator()(const ArrayStep& step) const {
  const int64_t place = (step.count - 1) % k;
  Array& sum = step.state[0];
  sum = step.gradient + (place == 0 ? 0.0 : 1.0) * sum;
  return (place == k - 1 ? 1.0 : 0.0) * sum;
}
PerArray<ApplyEvery> apply_every(int64_t k) {
  detail::check_positive(ApplyEvery::name, "k", static_cast<double>(k));
  return {ApplyEvery{k}};
}

NormalizeByUpdateNorm normalize_by_update_norm(const NormalizeByUpdateNorm& o) {
  detail::check_positive("normalize_by_update_norm", "scale_factor", o.scale_factor);
  detail::check_options("normalize_by_update_norm", {}, {{"eps", o.eps}});
  return o;
}

double AddNoise::deviation(int64_t t) const { return std::sqrt(eta / std::pow(static_cast<double>(t), gamma)); }
AddNoise add_noise(double eta, double gamma, Key key) {
  detail::check_options("add_noise", {}, {{"eta", eta}});
  detail::check_finite("add_noise", "gamma", gamma);
  return {{}, eta, gamma, key};
}

}  // namespace tessera::optim
