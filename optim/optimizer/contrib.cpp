// Computes schedule-free learning, Prodigy and reduce_on_plateau.
#include "optim/optimizer/contrib.h"

#include <ATen/core/grad_mode.h>

#include <functional>

#include "optim/transform/internal.h"
#include "sharding/base/fail.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/reduce/reductions.h"

namespace tessera::optim {

namespace detail {

double schedule_free_rate(const Schedule& learning_rate, int64_t count) {
  return value_of(learning_rate, count, "schedule_free", "learning_rate");
}

double weight_of(double weight, double total) {
  if (std::isnan(weight) || std::isnan(total)) return std::numeric_limits<double>::quiet_NaN();
  return weight == 0 && total == 0 ? 0 : weight / total;
}

void schedule_free(const ScheduleFreeStep& o, const nn::Leaves& updates, const nn::Leaves& z,
                   const nn::Leaves& params) {
  per_array("schedule_free", updates, z, 1, params, 1, [&](const ArrayStep& step) {
    Array& now = step.state[0];
    const Array y = astype(step.p(), now.dtype()), x = (y - (1 - o.b1) * now) / o.b1;
    now = now + step.gradient;
    return o.b1 * ((1 - o.ck) * x + o.ck * now) + (1 - o.b1) * now - y;
  });
}

void schedule_free_eval(double b1, const nn::Leaves& params, const nn::Leaves& z) {
  at::AutoGradMode off(false);
  check_same_tree("schedule_free_eval_params", "the state", z, params);
  for (size_t i = 0; i < params.size(); ++i) {
    if (z[i].value->is_absent()) continue;
    Array& y = *params[i].value;
    y = kept((astype(y, z[i].value->dtype()) - (1 - b1) * *z[i].value) / b1, y, "schedule_free_eval_params");
  }
}

namespace {

// Functions for the numbers of prodigy's update, which are doubles or, on an accelerator, arrays of one element.
double larger(double a, double b) { return std::isnan(b) ? b : std::max(a, b); }
Array larger(const Array& a, const Array& b) { return maximum(a, b); }
double ratio_or(double a, double b, double otherwise) { return b == 0 ? otherwise : a / b; }
Array ratio_or(const Array& a, const Array& b, const Array& otherwise) {
  return where(equal(b, 0.0), otherwise, a / b);
}

template <class Number>
struct ProdigyStep {
  const ProdigyOptions& o;
  int64_t count;
  const nn::Leaves &updates, &state, &params;
  std::function<Number(const Array& scalar, double otherwise)> number;

  Array& moment_of(size_t tree, size_t i) const { return *state[tree * params.size() + i].value; }

  std::pair<Number, Number> operator()(const Number& d, const Number& numerator_before) const {
    const size_t n = params.size();
    const auto [beta1, beta2] = o.betas;
    const double beta3 = o.beta3.value_or(std::sqrt(beta2)), t = static_cast<double>(count + 1);
    const double correction = std::sqrt(1 - std::pow(beta2, t)) / (1 - std::pow(beta1, t));
    const Number dlr = d * value_of(o.learning_rate, count, "prodigy", "learning_rate") * correction;
    std::vector<Array> products, sums;
    for (size_t i = 0; i < n; ++i) {
      if (updates[i].value->is_absent()) continue;
      Array &m = moment_of(0, i), &v = moment_of(1, i), &s = moment_of(2, i), &p0 = moment_of(3, i);
      const Array& p = *params[i].value;
      check_has_state("prodigy", params[i], *updates[i].value, m);
      for (Array* x : {&m, &v, &s, &p0}) follow("prodigy", *x, params[i]);
      const Array g = astype(*updates[i].value, m.dtype()), dg = d * g;
      products.push_back(sum(g * (p0 - astype(p, m.dtype()))));
      m = kept(moment(m, dg, beta1), m, "prodigy");
      v = kept(moment(v, square(dg), beta2), v, "prodigy");
      s = kept(beta3 * s + (o.safeguard_warmup ? d : dlr) / o.estim_lr0 * dg, s, "prodigy");
      sums.push_back(sum(abs(s)));
    }
    const Number product = number(total(products), 0), size = number(total(sums), 1);
    const Number numerator = beta3 * numerator_before + d / o.estim_lr0 * dlr * product;
    const Number next = larger(d, ratio_or(o.estim_lr_coef * numerator, size, d));  // size 0: no gradient so far
    for (size_t i = 0; i < n; ++i) {
      if (updates[i].value->is_absent()) continue;
      const Array &m = moment_of(0, i), &v = moment_of(1, i);
      *updates[i].value =
          -o.weight_decay * dlr * astype(*params[i].value, m.dtype()) - dlr * m / (sqrt(v) + next * o.eps);
    }
    return {next, numerator};
  }
};

// Returns the first array that has a gradient, if it is stored on an accelerator.
const Array* on_accelerator(const nn::Leaves& updates, const nn::Leaves& params) {
  for (size_t i = 0; i < params.size(); ++i)
    if (!updates[i].value->is_absent()) return is_on_accelerator(*params[i].value) ? params[i].value : nullptr;
  return nullptr;
}

}  // namespace

ProdigyNumbers prodigy(const ProdigyOptions& o, int64_t count, const ProdigyNumbers& before, const nn::Leaves& updates,
                       const nn::Leaves& state, const nn::Leaves& params) {
  at::AutoGradMode off(false);
  check_count("prodigy", count + 1);
  check_same_tree("prodigy", "the gradient", updates, params);
  check_sizes("prodigy", state, 4, params);
  if (const Array* there = on_accelerator(updates, params)) {
    const auto scalar = [](const Array& x, double) { return astype(x, float32); };
    const auto [next, numerator] = ProdigyStep<Array>{o, count, updates, state, params, scalar}(
        before.estim_lr.array(*there), before.numerator_weighted.array(*there));
    return {DeviceScalar(next), DeviceScalar(numerator)};
  }
  const auto value = [](const Array& x, double otherwise) { return known_value(x).value_or(otherwise); };
  const auto [next, numerator] = ProdigyStep<double>{o, count, updates, state, params, value}(
      before.estim_lr.value(), before.numerator_weighted.value());
  return {next, numerator};
}

}  // namespace detail

namespace {

Schedule warmed_up(const char* verb, double learning_rate, const std::optional<int64_t>& warmup_steps) {
  detail::check_finite(verb, "learning_rate", learning_rate);
  if (!warmup_steps) return learning_rate;
  return warmup_constant_schedule({.init_value = 0, .peak_value = learning_rate, .warmup_steps = *warmup_steps});
}

}  // namespace

ScheduleFreeSgd schedule_free_sgd(const ScheduleFreeSgdOptions& o) {
  const Schedule rate = warmed_up("schedule_free_sgd", o.learning_rate, o.warmup_steps);
  detail::check_finite("schedule_free_sgd", "weight_decay", o.weight_decay.value_or(0));
  detail::check_finite("schedule_free_sgd", "weight_lr_power", o.weight_lr_power);
  return schedule_free(chain(add_decayed_weights(o.weight_decay.value_or(0)), scale_by_learning_rate(rate)), rate, o.b1,
                       o.weight_lr_power);
}

ScheduleFreeAdamw schedule_free_adamw(const ScheduleFreeAdamwOptions& o) {
  const Schedule rate = warmed_up("schedule_free_adamw", o.learning_rate, o.warmup_steps);
  detail::check_options("schedule_free_adamw", {{"b2", o.b2}}, {{"eps", o.eps}});
  detail::check_finite("schedule_free_adamw", "weight_decay", o.weight_decay);
  detail::check_finite("schedule_free_adamw", "weight_lr_power", o.weight_lr_power);
  const ScaleByRms rms{.decay = o.b2, .eps = o.eps, .eps_in_sqrt = false, .bias_correction = true};
  return schedule_free(chain(scale_by_rms(rms), add_decayed_weights(o.weight_decay), scale_by_learning_rate(rate)),
                       rate, o.b1, o.weight_lr_power);
}

Prodigy prodigy(const ProdigyOptions& o) {
  detail::check_rate("prodigy", "learning_rate", o.learning_rate);
  detail::check_options("prodigy",
                        {{"betas", o.betas.first}, {"betas", o.betas.second}, {"beta3", o.beta3.value_or(0)}},
                        {{"eps", o.eps}, {"weight_decay", o.weight_decay}});
  detail::check_positive("prodigy", "estim_lr0", o.estim_lr0);
  detail::check_finite("prodigy", "estim_lr_coef", o.estim_lr_coef);
  return {{}, o};
}

ReduceOnPlateauState ReduceOnPlateau::next(ReduceOnPlateauState state, const ExtraArgs& extra) const {
  if (!extra.value)
    fail(ErrorKind::invalid_argument, "reduce_on_plateau",
         "no value given, expected the loss: optimizer.update(model, grads, {.value = loss}).");
  detail::check_finite("reduce_on_plateau", "value", *extra.value);
  const auto seen = static_cast<double>(state.count);
  state.count += 1;
  state.avg_value = (seen * state.avg_value + *extra.value) / (seen + 1);
  if (state.count < accumulation_size) return state;
  const bool improved = state.avg_value < (1 - rtol) * state.best_value - atol;
  if (improved) state.best_value = state.avg_value;
  state.plateau_count = improved ? 0 : state.plateau_count + 1;
  if (state.cooldown_count > 0) {
    state.plateau_count = 0;
    state.cooldown_count -= 1;
  } else if (state.plateau_count == patience) {
    state.plateau_count = 0;
    state.scale = std::max(state.scale * factor, min_scale);
    state.cooldown_count = cooldown;
  } else {
    state.scale = std::max(state.scale, min_scale);
  }
  state.count = 0;
  state.avg_value = 0;
  return state;
}

ReduceOnPlateau reduce_on_plateau(const ReduceOnPlateau& o) {
  const auto check = [](bool fits, const char* name, auto given, const char* expected) {
    if (!fits)
      fail(ErrorKind::invalid_argument, "reduce_on_plateau", "{}: {} given, expected {}.", name, given, expected);
  };
  check(o.factor > 0 && o.factor < 1, "factor", o.factor, "0 < factor < 1");
  check(o.rtol >= 0 && o.rtol <= 1, "rtol", o.rtol, "0 <= rtol <= 1");
  check(o.atol >= 0, "atol", o.atol, "atol >= 0");
  check(o.rtol != 0 || o.atol != 0, "rtol and atol", "both 0", "one above 0");
  check(o.cooldown >= 0, "cooldown", o.cooldown, "0 or more");
  check(o.min_scale >= 0, "min_scale", o.min_scale, "min_scale >= 0");
  detail::at_least(1, "reduce_on_plateau", "patience", o.patience);
  detail::at_least(1, "reduce_on_plateau", "accumulation_size", o.accumulation_size);
  return o;
}

}  // namespace tessera::optim
