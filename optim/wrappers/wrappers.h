// Wrappers of one transform: accumulate, apply_if_finite, cautious, lookahead, params_ema, inject_hyperparams.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "nn/tree/tree.h"
#include "optim/schedules/check_options.h"
#include "optim/schedules/schedule.h"
#include "optim/transform/finite_gate.h"
#include "optim/transform/update_step.h"

namespace tessera::optim {

namespace detail {
// Adds `grads` to `acc`, the mean (or the sum) of n gradients so far. Adds 1 to `counts` for each gradient that is not
// absent. If a gradient is absent at some of the steps, it counts as zeros there. Gradients that are partial sums stay
// partial.
void add_to_mean(const nn::Leaves& acc, std::vector<int64_t>& counts, const nn::Leaves& grads, int64_t n,
                 bool use_grad_mean);
// Converts the accumulated gradients to the parameters' element types and shardings, reduced all together. Parameters
// that had no gradient get an absent one.
void finish_mean(const nn::Leaves& acc, const std::vector<int64_t>& counts, const nn::Leaves& params);
// Returns whether all elements are finite. One all-reduce.
bool all_finite(const Arrays& arrays);
// Returns true if these arrays are on an accelerator.
bool are_on_accelerator(const Arrays& arrays);
// Subtracts n from each update count in the states of a chain. A model in a state keeps its own field `count`.
template <class State>
void subtract_from_counts(State& state, int64_t n) {
  if constexpr (requires { std::tuple_size<State>::value; }) {
    std::apply([n](auto&... parts) { (subtract_from_counts(parts, n), ...); }, state);
  } else if constexpr (requires { state.states; }) {
    subtract_from_counts(state.states, n);
  } else if constexpr (requires { state.has_value(); }) {
    if (state) subtract_from_counts(*state, n);
  } else if constexpr (requires {
                         { state.count } -> std::same_as<int64_t&>;
                       }) {
    state.count -= n;
  }
}
// Sets slow = slow + step_size (params + updates - slow), and `updates` to the difference from params to slow.
void look_ahead(const nn::Leaves& updates, const nn::Leaves& slow, const nn::Leaves& params, double step_size);
// Replaces trained arrays by copies, in float32 for half precision.
void make_own(const nn::Leaves& tree);
template <class Model>
Model own_copies(Model params) {
  make_own(nn::leaves(params));
  return params;
}
void update_average(const nn::Leaves& average, const nn::Leaves& params, const nn::Leaves& updates, double decay);
// Replaces u by u m / max(mean(m), 1e-3), where m is 1 where u g > 0, else 0.
void be_cautious(const Arrays& updates, const Arrays& gradients);
}  // namespace detail

// ---- accumulate -----------------------------------------------------------------------------------------------------

template <class Model, class State>
struct MultiStepsState {
  int64_t mini_step = 0, gradient_step = 0;
  State inner_opt_state;
  Model acc_grads;
  std::vector<int64_t> grad_counts;  // number of gradients in each of acc_grads
};

// Accumulates gradients over k updates, as optax.MultiSteps. At every k-th update it returns the inner transform's
// update of the mean (or the sum) of the last k gradients. In between it returns zeros and does not run the inner
// transform. k may depend on the number of inner updates done.
//
// Gradients are added in float32 and not resharded. Partial sums of value_and_grad(loss_fn, {.reduce = false}) stay
// partial until the k-th update, which reduces them once, all together. A parameter without a gradient in all k updates
// (a frozen one) has none in the inner transform's update. A NaN reaches the parameters only at the k-th update, after
// which the mean is reset. (In Optax a NaN reaches them immediately, because its zeros are 0 times an inner update.)
template <class Inner>
struct MultiSteps : detail::InPlaceTransform<MultiSteps<Inner>> {
  Inner opt;
  std::function<int64_t(int64_t gradient_step)> every_k_schedule;
  bool use_grad_mean = true;

  template <class Model>
  auto init(const Model& params) const {
    return MultiStepsState<Model, decltype(opt.init(params))>{0, 0, opt.init(params), zeros_like(params),
                                                              std::vector<int64_t>(nn::leaves(params).size())};
  }
  void run(auto& updates, auto& state, const auto& params, const detail::UpdateStep& step) const {
    step.requires_host();
    auto acc = state.acc_grads;
    std::vector<int64_t> counts = state.grad_counts;
    detail::add_to_mean(nn::leaves(acc), counts, nn::leaves(updates), state.mini_step, use_grad_mean);
    if (!completes(state)) {
      step.set_to_zero(nn::bare_arrays(updates).arrays);
      return step.commit([acc = std::move(acc), counts = std::move(counts), &state]() mutable {
        state.acc_grads = std::move(acc), state.grad_counts = std::move(counts), state.mini_step += 1;
      });
    }
    detail::finish_mean(nn::leaves(acc), counts, nn::leaves(params));
    updates = std::move(acc);
    step(opt, updates, state.inner_opt_state, params);
    step.commit([zeros = zeros_like(params), &state]() mutable {
      state.acc_grads = std::move(zeros), state.mini_step = 0, state.gradient_step += 1;
      std::fill(state.grad_counts.begin(), state.grad_counts.end(), 0);
    });
  }

  // Returns whether the next update is the k-th.
  bool completes(const auto& state) const {
    return state.mini_step + 1 >= detail::at_least(1, "accumulate", "every_k", every_k_schedule(state.gradient_step));
  }
};

struct MultiStepsOptions {
  bool use_grad_mean = true;  // otherwise their sum
};

// Returns MultiSteps: accumulate(adamw({.learning_rate = 3e-4}), 4). Error (invalid_argument): k below 1.
template <class Inner>
MultiSteps<Inner> accumulate(Inner opt, int64_t every_k, MultiStepsOptions options = {}) {
  detail::at_least(1, "accumulate", "every_k", every_k);
  return {{}, std::move(opt), [every_k](int64_t) { return every_k; }, options.use_grad_mean};
}
template <class Inner>
MultiSteps<Inner> accumulate(Inner opt, std::function<int64_t(int64_t)> every_k_schedule,
                             MultiStepsOptions options = {}) {
  return {{}, std::move(opt), std::move(every_k_schedule), options.use_grad_mean};
}

// ---- apply_if_finite ------------------------------------------------------------------------------------------------

// State of apply_if_finite. After updates on an accelerator, the counts are exact once Optimizer::state(), a checkpoint
// or another walk over the state's scalars has read them.
template <class State>
struct ApplyIfFiniteState {
  int64_t notfinite_count = 0;  // gradients in a row that were not finite
  bool last_finite = true;
  int64_t total_notfinite = 0;
  State inner_state;
  detail::DeviceCounts late = {};

  void read_counts() {
    if (late.rejected.is_absent()) return;
    const detail::DeviceCounts read = std::exchange(late, {});
    notfinite_count = read.in_a_row.template item<int64_t>(), total_notfinite = read.total.template item<int64_t>();
    last_finite = read.finite.template item<bool>();
    detail::subtract_from_counts(inner_state, read.rejected.template item<int64_t>());
  }
  template <class Visit>
  void visit_fields(Visit&& visit) {
    visit(std::string_view("notfinite_count"), notfinite_count);
    visit(std::string_view("last_finite"), last_finite);
    visit(std::string_view("total_notfinite"), total_notfinite);
    visit(std::string_view("inner_state"), inner_state);
  }
  void settle() { read_counts(); }
};

// Skips updates whose gradients have an infinity or a NaN, as optax.apply_if_finite: they give zeros and do not change
// the inner state. After more than max_consecutive_errors in a row they are applied.
//
// On an accelerator, the decision is made there without a wait if the inner transform is a chain that ends with adam,
// adamw or sgd. If the chain's learning rate is a schedule, the host reads the counts once in 256 updates. Other inner
// transforms count on the host, so the host reads whether the previous update was applied.
// Error (invalid_argument): the model is on a mesh without devices of this process, which has no values to check.
template <class Inner>
struct ApplyIfFinite : detail::InPlaceTransform<ApplyIfFinite<Inner>> {
  Inner inner;
  int64_t max_consecutive_errors;

  auto init(const auto& params) const {
    return ApplyIfFiniteState<decltype(inner.init(params))>{.inner_state = inner.init(params)};
  }
  void run(auto& updates, auto& state, const auto& params, const detail::UpdateStep& step) const {
    step.requires_host();
    const detail::Arrays arrays = nn::bare_arrays(updates).arrays;
    if constexpr (detail::can_be_gated<Inner>)
      if (step.pending && detail::are_on_accelerator(arrays)) return run_gated(updates, state, params, step);
    state.read_counts();
    const bool finite = detail::all_finite(arrays);
    const int64_t in_a_row = finite ? 0 : state.notfinite_count + 1;
    if (finite || in_a_row > max_consecutive_errors)
      step(inner, updates, state.inner_state, params);
    else
      step.set_to_zero(arrays);
    step.commit([finite, in_a_row, &state] {
      state.notfinite_count = in_a_row, state.last_finite = finite, state.total_notfinite += !finite;
    });
  }

 private:
  void run_gated(auto& updates, auto& state, const auto& params, const detail::UpdateStep& step) const {
    detail::FiniteGate gate(nn::bare_arrays(updates).arrays, state.late, state.notfinite_count, state.total_notfinite,
                            max_consecutive_errors, [&state] { state.read_counts(); });
    detail::UpdateStep gated = step;
    gated.gate = &gate;
    gated(inner, updates, state.inner_state, params);
    gate.select(nn::bare_arrays(updates).arrays);
    step.commit([next = gate.next(), &state] { state.late = next; });
  }
};
// Returns the transform. Error (invalid_argument): max_consecutive_errors below 0.
template <class Inner>
ApplyIfFinite<Inner> apply_if_finite(Inner inner, int64_t max_consecutive_errors) {
  return {
      {}, std::move(inner), detail::at_least(0, "apply_if_finite", "max_consecutive_errors", max_consecutive_errors)};
}

// ---- cautious -------------------------------------------------------------------------------------------------------

// Drops the elements of the inner transform's update u whose sign differs from the gradient g, and scales up the
// others: the update is u m / max(mean(m), 1e-3), where m is 1 if u g > 0, else 0. The mean is over one array; if the
// array is sharded, it costs an all-reduce of one number. The state is the inner transform's. Put `cautious` before
// weight decay, and before the learning rate, which changes the sign:
//   chain(cautious(scale_by_adam()), add_decayed_weights(0.1), scale_by_learning_rate(3e-4))
// Liang et al., "Cautious optimizers: improving training with one line of code" (2024).
template <class Inner>
struct Cautious : detail::InPlaceTransform<Cautious<Inner>> {
  Inner inner;

  auto init(const auto& params) const { return inner.init(params); }
  void run(auto& updates, auto& state, const auto& params, const detail::UpdateStep& step) const {
    auto gradients = updates;
    step.before()(inner, updates, state, params);
    detail::be_cautious(nn::bare_arrays(updates).arrays, nn::bare_arrays(gradients).arrays);
  }
};
template <class Inner>
Cautious<Inner> cautious(Inner inner) {
  return {{}, std::move(inner)};
}

// ---- lookahead, averages --------------------------------------------------------------------------------------------

template <class Model, class State>
struct LookaheadState {
  State fast_state;
  Model slow;
  int64_t steps_since_sync = 0;
};

// Keeps slow weights that follow the fast weights, as optax.lookahead. At every sync_period-th update the slow weights
// move by the fraction slow_step_size towards the fast weights, which are then set to the slow ones. The model holds
// the fast weights; the state holds the slow ones, for evaluation. (Optax keeps both in the parameters.) With
// reset_state, the state of the fast optimizer is reset, too.
// Zhang et al., "Lookahead optimizer: k steps forward, 1 step back" (2019).
template <class Inner>
struct Lookahead : detail::InPlaceTransform<Lookahead<Inner>> {
  Inner fast_optimizer;
  int64_t sync_period;
  double slow_step_size;
  bool reset_state;

  template <class Model>
  auto init(const Model& params) const {
    return LookaheadState<Model, decltype(fast_optimizer.init(params))>{fast_optimizer.init(params),
                                                                        detail::own_copies(params), 0};
  }
  void run(auto& updates, auto& state, const auto& params, const detail::UpdateStep& step) const {
    step.requires_host();
    step.before()(fast_optimizer, updates, state.fast_state, params);
    const int64_t since = (state.steps_since_sync + 1) % sync_period;
    step.commit([since, &state] { state.steps_since_sync = since; });
    if (since != 0) return;
    auto slow = state.slow;
    detail::look_ahead(nn::leaves(updates), nn::leaves(slow), nn::leaves(params), slow_step_size);
    step.commit([slow = std::move(slow), &state]() mutable { state.slow = std::move(slow); });
    if (reset_state)  // runs after the fast optimizer's own commits, which change its counts
      step.commit([fresh = fast_optimizer.init(params), &state] { state.fast_state = fresh; });
  }
};
// Returns the transform. Error (invalid_argument): sync_period below 1; slow_step_size negative or not finite.
template <class Inner>
Lookahead<Inner> lookahead(Inner fast_optimizer, int64_t sync_period, double slow_step_size, bool reset_state = false) {
  detail::at_least(1, "lookahead", "sync_period", sync_period);
  detail::check_options("lookahead", {}, {{"slow_step_size", slow_step_size}});
  return {{}, std::move(fast_optimizer), sync_period, slow_step_size, reset_state};
}

template <class Model>
struct ParamsEmaState {
  int64_t count = 0;
  Model ema;
};

// Keeps the moving average of the parameters, for evaluation: ema = decay ema + (1 - decay) (p + update), which begins
// with p. Put it at the end of a chain; it does not change the updates.
// Polyak and Juditsky, "Acceleration of stochastic approximation by averaging" (1992).
// The average has no Buffers and no integer arrays. To evaluate it, take them from the trained model:
//   nn::combine(std::get<optim::ParamsEmaState<Model>>(optimizer.state()).ema, model)
struct ParamsEma : detail::CopyingTransform<ParamsEma> {
  double decay;

  template <class Model>
  ParamsEmaState<Model> init(const Model& params) const {
    return {0, detail::own_copies(params)};
  }
  void run(auto& updates, auto& state, const auto& params, const detail::UpdateStep&) const {
    state.count += 1;
    detail::update_average(nn::leaves(state.ema), nn::leaves(params), nn::leaves(updates), decay);
  }
};
ParamsEma params_ema(double decay);

// ---- inject_hyperparams ---------------------------------------------------------------------------------------------

// Numbers by name. operator[] throws Error (invalid_argument) for an unknown name; the message lists the known ones.
class Hyperparams {
 public:
  Hyperparams() = default;
  explicit Hyperparams(std::map<std::string, double> values) : values_(std::move(values)) {}
  double& operator[](const std::string& name);
  double operator[](const std::string& name) const;
  const std::map<std::string, double>& values() const { return values_; }

  template <class Visit>
  void visit_fields(Visit&& visit) {
    for (auto& [name, value] : values_) visit(std::string_view(name), value);
  }

 private:
  std::map<std::string, double> values_;
};

namespace detail {
// Returns the current numbers, with the schedules' values.
Hyperparams hyperparams_at(const std::map<std::string, Schedule>& schedules, int64_t count, const Hyperparams& now);
}  // namespace detail

// State of inject_hyperparams. You may change `hyperparams` between updates.
template <class State>
struct InjectHyperparamsState {
  int64_t count = 0;
  Hyperparams hyperparams;
  State inner_state;
};

template <class Factory>
struct InjectHyperparams : detail::InPlaceTransform<InjectHyperparams<Factory>> {
  Factory inner_factory;
  std::map<std::string, Schedule> schedules;

  auto init(const auto& params) const {
    Hyperparams values = detail::hyperparams_at(schedules, 0, {});
    auto inner = inner_factory(std::as_const(values)).init(params);
    return InjectHyperparamsState<decltype(inner)>{0, std::move(values), std::move(inner)};
  }
  void run(auto& updates, auto& state, const auto& params, const detail::UpdateStep& step) const {
    step.requires_host();
    const Hyperparams now = detail::hyperparams_at(schedules, state.count, state.hyperparams);
    detail::UpdateStep uncached = step;
    uncached.caches_masks = false;  // the inner transform owns the masks and lives only for this update
    uncached(inner_factory(now), updates, state.inner_state, params);
    step.commit([now, &state] { state.hyperparams = now, state.count += 1; });
  }
};

// Makes settings part of the state, so that you can read and change them during training, as optax.inject_hyperparams.
//   auto optimizer = optim::Optimizer(model, optim::inject_hyperparams(
//       [](const optim::Hyperparams& h) { return optim::adamw({.learning_rate = h["learning_rate"]}); },
//       {{"learning_rate", 3e-4}}));
//   optimizer.state().hyperparams["learning_rate"] = 1e-4;
// A number stays as it is in the state. A schedule is evaluated at every update, which writes its value to the state.
// The factory is called at every update. Error (invalid_argument): a name that the factory reads and that is not given.
template <class Factory>
InjectHyperparams<Factory> inject_hyperparams(Factory inner_factory, std::map<std::string, Schedule> hyperparams) {
  return {{}, std::move(inner_factory), std::move(hyperparams)};
}

}  // namespace tessera::optim
