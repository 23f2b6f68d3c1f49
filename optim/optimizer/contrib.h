// From optax.contrib: schedule-free learning, Prodigy, and learning rates that fall when the loss stops falling.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>

#include "optim/formulas/adaptive.h"
#include "optim/optimizer/optimizers.h"
#include "optim/wrappers/chain.h"
#include "optim/wrappers/wrappers.h"

namespace tessera::optim {

// ---- schedule_free --------------------------------------------------------------------------------------------------

template <class Model, class State>
struct ScheduleFreeState {
  double weight_sum = 0;
  int64_t step_count = 1;
  double max_lr = 0;
  State base_optimizer_state;
  Model z;
};

namespace detail {
struct ScheduleFreeStep {
  double b1, ck;
};
// Adds the updates to z. Then replaces the updates by the differences between the next y and the parameters y.
void schedule_free(const ScheduleFreeStep& step, const nn::Leaves& updates, const nn::Leaves& z,
                   const nn::Leaves& params);
void schedule_free_eval(double b1, const nn::Leaves& params, const nn::Leaves& z);
// Returns the learning rate. Error (invalid_argument): a schedule whose value is not finite.
double schedule_free_rate(const Schedule& learning_rate, int64_t count);
// Returns weight / total: the weight of this step, max_lr^power, relative to all so far; 0 if total is 0. NaN stays
// NaN.
double weight_of(double weight, double total);
}  // namespace detail

// Trains without a learning rate schedule. The model's parameters are y = b1 x + (1 - b1) z. The base optimizer updates
// z; x is the average of all z, weighted with max_lr^weight_lr_power. Evaluate with x, from schedule_free_eval_params.
// The base optimizer must have no momentum (b1 = 0). Learning rates are evaluated at step_count, which begins at 1.
// Defazio et al., "The road less scheduled" (2024).
template <class Base>
struct ScheduleFree : detail::InPlaceTransform<ScheduleFree<Base>> {
  Base base_optimizer;
  Schedule learning_rate;
  double b1 = 0.9;
  double weight_lr_power = 2;

  template <class Model>
  auto init(const Model& params) const {
    return ScheduleFreeState<Model, decltype(base_optimizer.init(params))>{
        .base_optimizer_state = base_optimizer.init(params), .z = detail::own_copies(params)};
  }
  void run(auto& updates, auto& state, const auto& params, const detail::UpdateStep& step) const {
    step.requires_host();
    const double rate = detail::schedule_free_rate(learning_rate, state.step_count);
    const double max_lr = std::max(state.max_lr, rate), weight = std::pow(max_lr, weight_lr_power);
    const double weight_sum = state.weight_sum + weight;
    step.before()(base_optimizer, updates, state.base_optimizer_state, params);
    auto z = state.z;
    detail::schedule_free({b1, detail::weight_of(weight, weight_sum)}, nn::leaves(updates), nn::leaves(z),
                          nn::leaves(params));
    step.commit([=, z = std::move(z), &state]() mutable {
      state.max_lr = max_lr, state.weight_sum = weight_sum, state.z = std::move(z);
      state.step_count += 1;
    });
  }
};

// Returns the transform. Error (invalid_argument): b1 outside (0, 1).
template <class Base>
ScheduleFree<Base> schedule_free(Base base_optimizer, Schedule learning_rate, double b1 = 0.9,
                                 double weight_lr_power = 2) {
  detail::check_options("schedule_free", {{"b1", b1}}, {});
  detail::check_positive("schedule_free", "b1", b1);
  return {{}, std::move(base_optimizer), std::move(learning_rate), b1, weight_lr_power};
}

// Returns x, computed from the optimizer's state and the parameters: (y - (1 - b1) z) / b1.
template <class Base, class Model, class State>
Model schedule_free_eval_params(const ScheduleFree<Base>& transform, const State& state, Model params) {
  detail::schedule_free_eval(transform.b1, nn::leaves(params), nn::leaves(state.z));
  return params;
}

struct ScheduleFreeSgdOptions {  // sgd without momentum, with optional weight decay
  double learning_rate = 1;
  std::optional<int64_t> warmup_steps = std::nullopt;
  double b1 = 0.9;
  std::optional<double> weight_decay = std::nullopt;
  double weight_lr_power = 2;
};
using ScheduleFreeSgd = ScheduleFree<Chain<AddDecayedWeights, ScaleByLearningRate>>;
ScheduleFreeSgd schedule_free_sgd(const ScheduleFreeSgdOptions& options = {});  // schedule_free(sgd)

struct ScheduleFreeAdamwOptions {  // adamw without momentum; b1 is schedule_free's
  double learning_rate = 0.0025;
  std::optional<int64_t> warmup_steps = std::nullopt;
  double b1 = 0.9, b2 = 0.999, eps = 1e-8, weight_decay = 0, weight_lr_power = 2;
};
using ScheduleFreeAdamw = ScheduleFree<Chain<PerArray<ScaleByRms>, AddDecayedWeights, ScaleByLearningRate>>;
ScheduleFreeAdamw schedule_free_adamw(const ScheduleFreeAdamwOptions& options = {});  // schedule_free(adamw)

// ---- prodigy --------------------------------------------------------------------------------------------------------

// State of Prodigy. On an accelerator, its numbers are read at first use.
template <class Model>
struct ProdigyState {
  Model exp_avg, exp_avg_sq, grad_sum, params0;
  detail::DeviceScalar estim_lr, numerator_weighted;
  int64_t count = 0;

  void settle() const { estim_lr.value(), numerator_weighted.value(); }
  template <class Visit>
  void visit_fields(Visit&& visit) {
    visit(std::string_view("exp_avg"), exp_avg), visit(std::string_view("exp_avg_sq"), exp_avg_sq);
    visit(std::string_view("grad_sum"), grad_sum), visit(std::string_view("params0"), params0);
    visit(std::string_view("estim_lr"), estim_lr.known());
    visit(std::string_view("numerator_weighted"), numerator_weighted.known());
    visit(std::string_view("count"), count);
  }
};

struct ProdigyOptions {
  Schedule learning_rate = 1.0;
  std::pair<double, double> betas = {0.9, 0.999};
  std::optional<double> beta3 = std::nullopt;  // default: sqrt(betas.second)
  double eps = 1e-8;
  double estim_lr0 = 1e-6;
  double estim_lr_coef = 1;
  double weight_decay = 0;
  bool safeguard_warmup = false;
};

namespace detail {
struct ProdigyNumbers {
  DeviceScalar estim_lr, numerator_weighted;
};
ProdigyNumbers prodigy(const ProdigyOptions& o, int64_t count, const ProdigyNumbers& before, const nn::Leaves& updates,
                       const nn::Leaves& state, const nn::Leaves& params);
}  // namespace detail

// Runs Adam with an estimated learning rate. estim_lr grows when the accumulated <g, p0 - p> is large compared with the
// 1-norm of the accumulated g. Each of the two takes one all-reduce of one number.
// Mishchenko and Defazio, "Prodigy: an expeditiously adaptive parameter-free learner" (2023).
struct Prodigy : detail::CopyingTransform<Prodigy> {
  ProdigyOptions options;

  template <class Model>
  ProdigyState<Model> init(const Model& params) const {
    return {zeros_like(params), zeros_like(params), zeros_like(params), detail::own_copies(params), options.estim_lr0};
  }
  void run(auto& updates, auto& state, const auto& params, const detail::UpdateStep&) const {
    const auto [estim_lr, numerator] = detail::prodigy(options, state.count, {state.estim_lr, state.numerator_weighted},
                                                       nn::leaves(updates), nn::leaves(state), nn::leaves(params));
    state.estim_lr = estim_lr;
    state.numerator_weighted = numerator;
    state.count += 1;
  }
};
Prodigy prodigy(const ProdigyOptions& options = {});

// ---- reduce_on_plateau ----------------------------------------------------------------------------------------------

struct ReduceOnPlateauState {
  double scale = 1;
  double best_value = std::numeric_limits<double>::infinity();
  int64_t plateau_count = 0, cooldown_count = 0, count = 0;
  double avg_value = 0;
};

// Multiplies updates by a scale that falls when the loss stops falling. The loss is averaged over accumulation_size
// updates. If `patience` averages in a row are not below (1 - rtol) best - atol, the scale is multiplied by `factor`.
// It then stays unchanged for `cooldown` averages. Needs .value:
//   optim::Optimizer optimizer(model, optim::chain(optim::adam({.learning_rate = 1e-3}), optim::reduce_on_plateau()));
//   optimizer.update(model, grads, {.value = loss.item<double>()});
// Errors (invalid_argument): no value, or one that is not finite; factor outside (0, 1); rtol or atol negative, both 0,
// or rtol above 1.
struct ReduceOnPlateau : detail::CopyingTransform<ReduceOnPlateau, ReduceOnPlateauState> {
  double factor = 0.1;
  int64_t patience = 10;
  double rtol = 1e-4, atol = 0;
  int64_t cooldown = 0;
  int64_t accumulation_size = 1;
  double min_scale = 0;

  void run(auto& updates, ReduceOnPlateauState& state, const auto&, const detail::UpdateStep& step) const {
    state = next(state, step.extra);
    detail::scale(nn::bare_arrays(updates).arrays, state.scale);
  }
  ReduceOnPlateauState next(ReduceOnPlateauState state, const ExtraArgs& extra) const;
};
ReduceOnPlateau reduce_on_plateau(const ReduceOnPlateau& options = {});

}  // namespace tessera::optim
