// Transforms that scale and shift updates: learning rates, weight decay, momentum, trust ratios, noise.
#pragma once

#include <cstdint>

#include "optim/formulas/per_array.h"
#include "optim/schedules/schedule.h"
#include "optim/transform/update_step.h"
#include "sharding/random/key.h"

namespace tessera::optim {

// Names, defaults and formulas are Optax's; g is the update that a transform receives, p the parameter.

namespace detail {
// Replace the arrays of `updates`, a tree that the caller has copied.
void scale(const Arrays& updates, double factor);
void scale(const Arrays& updates, const Array& factor);  // a replicated scalar
void scale(const Arrays& updates, const ScalarSource& factor);
void add_decayed_weights(const nn::Leaves& updates, const nn::Leaves& params, double weight_decay, const Mask& mask,
                         bool cautious);
void add_noise(const nn::Leaves& updates, const Key& key, double deviation);
void normalize(const Arrays& updates, double scale_factor, double eps);
}  // namespace detail

// Returns updates unchanged.
struct Identity : detail::InPlaceTransform<Identity, EmptyState> {
  void run(auto&, EmptyState&, const auto&, const detail::UpdateStep&) const {}
};
inline Identity identity() { return {}; }

// Sets updates to zero; an Optimizer leaves the parameters unchanged.
struct SetToZero : detail::InPlaceTransform<SetToZero, EmptyState> {
  void run(auto& updates, EmptyState&, const auto&, const detail::UpdateStep& step) const {
    step.set_to_zero(nn::bare_arrays(updates).arrays);
  }
};
inline SetToZero set_to_zero() { return {}; }

// Multiplies by a constant: step_size * g.
struct Scale : detail::InPlaceTransform<Scale, EmptyState> {
  double step_size;

  void run(auto& updates, EmptyState&, const auto&, const detail::UpdateStep&) const {
    detail::scale(nn::bare_arrays(updates).arrays, step_size);
  }
};
Scale scale(double step_size);

struct ScaleByScheduleState {
  int64_t count = 0;
};

// Multiplies by a schedule: step_size_fn(count) * g. Error (invalid_argument), before anything is changed: a schedule
// whose value is not finite.
struct ScaleBySchedule : detail::InPlaceTransform<ScaleBySchedule, ScaleByScheduleState> {
  Schedule step_size_fn;

  void run(auto& updates, ScaleByScheduleState& state, const auto&, const detail::UpdateStep& step) const {
    detail::scale(nn::bare_arrays(updates).arrays, factor(state, step));
  }
  // Returns the factor, and counts the update.
  detail::ScalarSource factor(ScaleByScheduleState& state, const detail::UpdateStep& step) const;
};
ScaleBySchedule scale_by_schedule(Schedule step_size_fn);

// Multiplies by the learning rate: -learning_rate(count) * g; without flip_sign, learning_rate(count) * g. Errors: as
// scale_by_schedule.
struct ScaleByLearningRate : detail::InPlaceTransform<ScaleByLearningRate, ScaleByScheduleState> {
  Schedule learning_rate;
  bool flip_sign = true;

  void run(auto& updates, ScaleByScheduleState& state, const auto&, const detail::UpdateStep& step) const {
    if (!learning_rate.constant()) step.read_counts();
    detail::scale(nn::bare_arrays(updates).arrays, factor(state, step));
  }
  // Returns the factor, reports the rate, and counts the update.
  detail::ScalarSource factor(ScaleByScheduleState& state, const detail::UpdateStep& step) const;
};
ScaleByLearningRate scale_by_learning_rate(Schedule rate, bool flip_sign = true);

// Adds weight decay: g + weight_decay(count) * p for the parameters that the mask selects, else g. With `cautious`,
// only elements with g * p >= 0 decay. The update is subtracted later, so these are the elements that it moves towards
// zero. Chen et al., "Cautious weight decay" (2025).
struct AddDecayedWeights : detail::InPlaceTransform<AddDecayedWeights, ScaleByScheduleState> {
  Schedule weight_decay = 0.0;
  Mask mask = {};
  bool cautious = false;

  void run(auto& updates, ScaleByScheduleState& state, const auto& params, const detail::UpdateStep& step) const {
    if (!weight_decay.constant()) step.read_counts();
    detail::add_decayed_weights(nn::leaves(updates), nn::leaves(params), value(state.count), mask, cautious);
    step.count(state.count);
  }
  // Returns the decay at this count. Error (invalid_argument): a schedule in a graphed step.
  double value(int64_t count) const;
};
AddDecayedWeights add_decayed_weights(Schedule weight_decay, Mask mask = {}, bool cautious = false);

// Adds momentum: the update is trace = g + decay * trace. With nesterov it is g + decay * trace, of the new trace.
struct Trace {
  double decay = must_be_given;
  bool nesterov = false;
  std::optional<DType> accumulator_dtype = std::nullopt;

  static constexpr const char* name = "trace";
  template <class Model>
  struct State {
    Model trace;
  };
  Array operator()(const ArrayStep& step) const;
};
PerArray<Trace> trace(const Trace& options);

// Takes the moving average: the update is ema = decay * ema + (1 - decay) * g; with debias, ema / (1 - decay^t).
struct Ema {
  double decay = must_be_given;
  bool debias = true;
  std::optional<DType> accumulator_dtype = std::nullopt;

  static constexpr const char* name = "ema";
  template <class Model>
  struct State {
    int64_t count = 0;
    Model ema;
  };
  Array operator()(const ArrayStep& step) const;
};
PerArray<Ema> ema(const Ema& options);

// Takes the sign: sign(g).
struct ScaleBySign {
  static constexpr const char* name = "scale_by_sign";
  Array operator()(const ArrayStep& step) const;
};
inline PerArray<ScaleBySign> scale_by_sign() { return {}; }

// Scales by the trust ratio: g * trust_coefficient * |p| / (|g| + eps), where |.| is the norm of the complete array, at
// least min_norm. The update is g if either norm is 0.
// You, Gitman and Ginsburg, "Large batch training of convolutional networks" (2017).
struct ScaleByTrustRatio {
  double min_norm = 0;
  double trust_coefficient = 1;
  double eps = 0;

  static constexpr const char* name = "scale_by_trust_ratio";
  Array operator()(const ArrayStep& step) const;
};
PerArray<ScaleByTrustRatio> scale_by_trust_ratio(const ScaleByTrustRatio& options = {});

// Scales by the parameter's root mean square: g * max(sqrt(mean(p^2)), min_scale).
struct ScaleByParamBlockRms {
  double min_scale = 1e-3;

  static constexpr const char* name = "scale_by_param_block_rms";
  Array operator()(const ArrayStep& step) const;
};
PerArray<ScaleByParamBlockRms> scale_by_param_block_rms(double min_scale = 1e-3);

struct ScaleByParamBlockNorm {  // g * max(|p|, min_scale)
  double min_scale = 1e-3;

  static constexpr const char* name = "scale_by_param_block_norm";
  Array operator()(const ArrayStep& step) const;
};
PerArray<ScaleByParamBlockNorm> scale_by_param_block_norm(double min_scale = 1e-3);

// Subtracts the mean of g over all dimensions except the first; g is unchanged if it has fewer than two dimensions.
// Yong et al., "Gradient centralization: a new optimization technique for deep neural networks" (2020).
struct Centralize {
  static constexpr const char* name = "centralize";
  Array operator()(const ArrayStep& step) const;
};
inline PerArray<Centralize> centralize() { return {}; }

// Keeps parameters nonnegative: the update is -p where p + g would be below 0, else g.
struct KeepParamsNonnegative {
  static constexpr const char* name = "keep_params_nonnegative";
  Array operator()(const ArrayStep& step) const;
};
inline PerArray<KeepParamsNonnegative> keep_params_nonnegative() { return {}; }

// Returns the sum of the last k gradients at every k-th update, else zeros. Transforms after it still run at every
// update; see accumulate to run them only at every k-th.
struct ApplyEvery {
  int64_t k = 1;

  static constexpr const char* name = "apply_every";
  template <class Model>
  struct State {
    int64_t count = 0;
    Model grad_acc;
  };
  Array operator()(const ArrayStep& step) const;
};
PerArray<ApplyEvery> apply_every(int64_t k = 1);

// Normalizes by the norm of all updates: g * scale_factor / (global_norm(g) + eps).
struct NormalizeByUpdateNorm {
  double scale_factor = 1;
  double eps = 1e-6;

  EmptyState init(const auto&) const { return {}; }
  template <class Model>
  std::pair<Model, EmptyState> update(Model grads, EmptyState, const Model&,
                                      std::source_location where = std::source_location::current()) const {
    const CallerScope caller(where);
    detail::normalize(nn::bare_arrays(grads).arrays, scale_factor, eps);
    return {std::move(grads), {}};
  }
};
NormalizeByUpdateNorm normalize_by_update_norm(const NormalizeByUpdateNorm& options = {});

struct AddNoiseState {
  int64_t count = 0;
  Key rng_key;
};

// Adds noise: g + sqrt(eta / t^gamma) * n, with n standard normal for every element, and the same on every mesh.
// Neelakantan et al., "Adding gradient noise improves learning for very deep networks" (2015).
struct AddNoise : detail::CopyingTransform<AddNoise> {
  double eta = must_be_given;
  double gamma = must_be_given;
  Key key;

  AddNoiseState init(const auto&) const { return {0, key}; }
  void run(auto& updates, AddNoiseState& state, const auto&, const detail::UpdateStep&) const {
    const auto [next, sample] = split<2>(state.rng_key);
    state = {state.count + 1, next};
    detail::add_noise(nn::leaves(updates), sample, deviation(state.count));
  }
  double deviation(int64_t t) const;
};
AddNoise add_noise(double eta, double gamma, Key key);

}  // namespace tessera::optim
