// Computes the schedules, and checks their options.
#include "optim/schedules/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "optim/schedules/check_options.h"
#include "sharding/base/fail.h"

namespace tessera::optim {

namespace {

void check_numbers(const char* verb, detail::Settings numbers) {
  for (const detail::Setting& number : numbers) {
    if (std::isnan(number.value))
      fail(ErrorKind::invalid_argument, detail::SettingNames::verb_for(verb), "no {} given, expected a number.",
           number.name);
    detail::check_finite(verb, number.name, number.value);
  }
}

void check_scales(const char* verb, const std::map<int64_t, double>& boundaries_and_scales) {
  for (const auto& [boundary, scale] : boundaries_and_scales)
    if (!(scale >= 0 && std::isfinite(scale)))
      fail(ErrorKind::invalid_argument, verb, "boundaries_and_scales: {} given at {}, expected a scale >= 0.", scale,
           boundary);
}

double as_double(int64_t n) { return static_cast<double>(n); }

double line(double from, double to, double part) { return (to - from) * part + from; }
double half_cosine(double from, double to, double part) {
  return to + (from - to) / 2 * (std::cos(std::numbers::pi * part) + 1);
}

}  // namespace

Schedule constant_schedule(double value) {
  check_numbers("constant_schedule", {{"value", value}});
  return value;
}

Schedule polynomial_schedule(const PolynomialSchedule& o) {
  constexpr const char* verb = "polynomial_schedule";
  check_numbers(verb, {{"init_value", o.init_value}, {"end_value", o.end_value}, {"power", o.power}});
  detail::at_least(1, verb, "transition_steps", o.transition_steps);
  detail::at_least(0, verb, "transition_begin", o.transition_begin);
  return [o](int64_t count) {
    const int64_t n = std::clamp<int64_t>(count - o.transition_begin, 0, o.transition_steps);
    const double left = 1 - as_double(n) / as_double(o.transition_steps);
    return (o.init_value - o.end_value) * std::pow(left, o.power) + o.end_value;
  };
}

Schedule linear_schedule(const LinearSchedule& o) {
  const detail::SettingNames scope("linear_schedule");
  return polynomial_schedule({.init_value = o.init_value,
                              .end_value = o.end_value,
                              .power = 1,
                              .transition_steps = o.transition_steps,
                              .transition_begin = o.transition_begin});
}

Schedule exponential_decay(const ExponentialDecay& o) {
  constexpr const char* verb = "exponential_decay";
  check_numbers(verb, {{"init_value", o.init_value}, {"decay_rate", o.decay_rate}});
  if (o.end_value) check_numbers(verb, {{"end_value", *o.end_value}});
  detail::at_least(1, verb, "transition_steps", o.transition_steps);
  detail::at_least(0, verb, "transition_begin", o.transition_begin);
  detail::check_positive(verb, "decay_rate", o.decay_rate);
  return [o](int64_t count) {
    const int64_t n = count - o.transition_begin;
    double exponent = as_double(n) / as_double(o.transition_steps);
    if (o.staircase) exponent = std::floor(exponent);
    const double value = n <= 0 ? o.init_value : o.init_value * std::pow(o.decay_rate, exponent);
    if (!o.end_value) return value;
    return o.decay_rate < 1 ? std::max(value, *o.end_value) : std::min(value, *o.end_value);
  };
}

Schedule cosine_decay_schedule(const CosineDecay& o) {
  constexpr const char* verb = "cosine_decay_schedule";
  check_numbers(verb, {{"init_value", o.init_value}, {"alpha", o.alpha}, {"exponent", o.exponent}});
  detail::at_least(1, verb, "decay_steps", o.decay_steps);
  return [o](int64_t count) {
    const double done = as_double(std::min(count, o.decay_steps)) / as_double(o.decay_steps);
    const double cosine = 0.5 * (1 + std::cos(std::numbers::pi * done));
    return o.init_value * ((1 - o.alpha) * std::pow(cosine, o.exponent) + o.alpha);
  };
}

Schedule piecewise_constant_schedule(const PiecewiseConstant& o) {
  constexpr const char* verb = "piecewise_constant_schedule";
  check_numbers(verb, {{"init_value", o.init_value}});
  check_scales(verb, o.boundaries_and_scales);
  return [o](int64_t count) {
    double value = o.init_value;
    for (const auto& [boundary, scale] : o.boundaries_and_scales)
      if (count >= boundary) value *= scale;
    return value;
  };
}

Schedule piecewise_interpolate_schedule(const PiecewiseInterpolate& o) {
  constexpr const char* verb = "piecewise_interpolate_schedule";
  check_numbers(verb, {{"init_value", o.init_value}});
  check_scales(verb, o.boundaries_and_scales);
  for (const auto& [boundary, scale] : o.boundaries_and_scales) detail::at_least(0, verb, "a boundary", boundary);
  return [o](int64_t count) {
    int64_t begin = 0;
    double value = o.init_value;
    for (const auto& [end, scale] : o.boundaries_and_scales) {
      if (count < end) {
        const double part = as_double(count - begin) / as_double(end - begin);
        return (o.interpolate_type == Interpolation::linear ? line : half_cosine)(value, value * scale, part);
      }
      begin = end, value *= scale;
    }
    return value;
  };
}

Schedule warmup_constant_schedule(const WarmupConstant& o) {
  constexpr const char* verb = "warmup_constant_schedule";
  check_numbers(verb, {{"init_value", o.init_value}, {"peak_value", o.peak_value}});
  detail::at_least(1, verb, "warmup_steps", o.warmup_steps);
  return linear_schedule({.init_value = o.init_value, .end_value = o.peak_value, .transition_steps = o.warmup_steps});
}

namespace {

Schedule after_warmup(double init_value, double peak_value, int64_t warmup_steps, const Schedule& decay) {
  if (warmup_steps == 0) return decay;
  return join_schedules(
      {linear_schedule({.init_value = init_value, .end_value = peak_value, .transition_steps = warmup_steps}), decay},
      {warmup_steps});
}

}  // namespace

Schedule warmup_cosine_decay_schedule(const WarmupCosineDecay& o) {
  constexpr const char* verb = "warmup_cosine_decay_schedule";
  check_numbers(verb, {{"init_value", o.init_value},
                       {"peak_value", o.peak_value},
                       {"end_value", o.end_value},
                       {"exponent", o.exponent}});
  if (o.warmup_steps < 0 || o.warmup_steps >= o.decay_steps)
    fail(ErrorKind::invalid_argument, verb,
         "warmup_steps = {}, decay_steps = {}, expected 0 <= warmup_steps < decay_steps: decay_steps is the length of "
         "the whole schedule, warmup included.",
         o.warmup_steps, o.decay_steps);
  const Schedule decay = cosine_decay_schedule({.init_value = o.peak_value,
                                                .decay_steps = o.decay_steps - o.warmup_steps,
                                                .alpha = o.peak_value == 0 ? 0 : o.end_value / o.peak_value,
                                                .exponent = o.exponent});
  return after_warmup(o.init_value, o.peak_value, o.warmup_steps, decay);
}

Schedule warmup_exponential_decay_schedule(const WarmupExponentialDecay& o) {
  constexpr const char* verb = "warmup_exponential_decay_schedule";
  check_numbers(verb, {{"init_value", o.init_value}, {"peak_value", o.peak_value}});
  detail::at_least(0, verb, "warmup_steps", o.warmup_steps);
  const Schedule decay = exponential_decay({.init_value = o.peak_value,
                                            .transition_steps = o.transition_steps,
                                            .decay_rate = o.decay_rate,
                                            .transition_begin = o.transition_begin,
                                            .staircase = o.staircase,
                                            .end_value = o.end_value});
  return after_warmup(o.init_value, o.peak_value, o.warmup_steps, decay);
}

Schedule warmup_stable_decay_schedule(const WarmupStableDecay& o) {
  constexpr const char* verb = "warmup_stable_decay_schedule";
  check_numbers(verb, {{"init_value", o.init_value}, {"peak_value", o.peak_value}, {"end_value", o.end_value}});
  detail::at_least(0, verb, "warmup_steps", o.warmup_steps);
  detail::at_least(0, verb, "stable_steps", o.stable_steps);
  detail::at_least(1, verb, "decay_steps", o.decay_steps);
  const auto decay = [o](int64_t count) {
    const double done = as_double(std::clamp<int64_t>(count, 0, o.decay_steps)) / as_double(o.decay_steps);
    if (o.decay_shape == DecayShape::cosine) return half_cosine(o.peak_value, o.end_value, done);
    return line(o.peak_value, o.end_value, o.decay_shape == DecayShape::linear ? done : std::sqrt(done));
  };
  return after_warmup(o.init_value, o.peak_value, o.warmup_steps,
                      [decay, stable = o.stable_steps](int64_t count) { return decay(count - stable); });
}

Schedule linear_onecycle_schedule(const LinearOnecycle& o) {
  constexpr const char* verb = "linear_onecycle_schedule";
  check_numbers(verb, {{"peak_value", o.peak_value}, {"pct_start", o.pct_start}, {"pct_final", o.pct_final}});
  detail::at_least(1, verb, "transition_steps", o.transition_steps);
  detail::check_positive(verb, "div_factor", o.div_factor);
  detail::check_positive(verb, "final_div_factor", o.final_div_factor);
  const double steps = as_double(o.transition_steps);
  const auto up = static_cast<int64_t>(o.pct_start * steps), down = static_cast<int64_t>(o.pct_final * steps);
  if (!(up < down && down < o.transition_steps))
    fail(ErrorKind::invalid_argument, verb,
         "pct_start = {}, pct_final = {} of {} steps, expected 0 <= pct_start < pct_final < 1, a step apart.",
         o.pct_start, o.pct_final, o.transition_steps);
  return piecewise_interpolate_schedule(
      {.interpolate_type = Interpolation::linear,
       .init_value = o.peak_value / o.div_factor,
       .boundaries_and_scales = {
           {up, o.div_factor}, {down, 1 / o.div_factor}, {o.transition_steps, 1 / o.final_div_factor}}});
}

Schedule cosine_onecycle_schedule(const CosineOnecycle& o) {
  constexpr const char* verb = "cosine_onecycle_schedule";
  check_numbers(verb, {{"peak_value", o.peak_value}, {"pct_start", o.pct_start}});
  detail::at_least(1, verb, "transition_steps", o.transition_steps);
  detail::check_positive(verb, "div_factor", o.div_factor);
  detail::check_positive(verb, "final_div_factor", o.final_div_factor);
  const auto up = static_cast<int64_t>(o.pct_start * as_double(o.transition_steps));
  if (up >= o.transition_steps)
    fail(ErrorKind::invalid_argument, verb,
         "pct_start = {} of {} steps, expected 0 <= pct_start < 1, a step before the end.", o.pct_start,
         o.transition_steps);
  return piecewise_interpolate_schedule(
      {.interpolate_type = Interpolation::cosine,
       .init_value = o.peak_value / o.div_factor,
       .boundaries_and_scales = {{up, o.div_factor}, {o.transition_steps, 1 / (o.div_factor * o.final_div_factor)}}});
}

Schedule join_schedules(std::vector<Schedule> schedules, std::vector<int64_t> boundaries) {
  if (schedules.size() != boundaries.size() + 1)
    fail(ErrorKind::invalid_argument, "join_schedules",
         "{} schedules and {} boundaries given, expected one schedule more than boundaries.", schedules.size(),
         boundaries.size());
  if (!std::is_sorted(boundaries.begin(), boundaries.end()))
    fail(ErrorKind::invalid_argument, "join_schedules",
         "boundaries that do not ascend given, expected each after the last.");
  return [schedules = std::move(schedules), boundaries = std::move(boundaries)](int64_t count) {
    const auto next = std::upper_bound(boundaries.begin(), boundaries.end(), count);
    const int64_t begin = next == boundaries.begin() ? 0 : *(next - 1);
    return schedules[static_cast<size_t>(next - boundaries.begin())](count - begin);
  };
}

Schedule sgdr_schedule(const std::vector<WarmupCosineDecay>& cycles) {
  std::vector<Schedule> schedules;
  std::vector<int64_t> boundaries;
  int64_t end = 0;
  for (const WarmupCosineDecay& cycle : cycles) {
    schedules.push_back(warmup_cosine_decay_schedule(cycle));
    boundaries.push_back(end += cycle.decay_steps);
  }
  if (!boundaries.empty()) boundaries.pop_back();
  return join_schedules(std::move(schedules), std::move(boundaries));
}

}  // namespace tessera::optim
