// Schedules: numbers that depend on the count of updates, with Optax's names, defaults and formulas.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera::optim {

// A function of the count of updates done before this one: the first update reads it at 0. A number is a schedule too:
// adamw({.learning_rate = 3e-4}), and so is any function:
// adamw({.learning_rate = [](int64_t count) { return 1e-3 / (1 + count); }}).
class Schedule {
 public:
  Schedule(double value) : constant_(value) {}
  template <class F>
  requires(!std::is_arithmetic_v<F> && !std::same_as<F, Schedule> && std::is_invocable_r_v<double, const F&, int64_t>)
      Schedule(F f)
      : value_(std::move(f)) {}

  double operator()(int64_t count) const { return constant_ ? *constant_ : value_(count); }
  // The number, where it is one.
  const std::optional<double>& constant() const { return constant_; }

 private:
  std::optional<double> constant_;
  std::function<double(int64_t)> value_;
};

// Every schedule below is made of its options, by Optax's names. What has the default `must_be_given` has none. Errors
// of all (invalid_argument): a number that is missing or not finite; steps that are out of range, as each one says.
inline constexpr double must_be_given = std::numeric_limits<double>::quiet_NaN();

Schedule constant_schedule(double value);  // the number at every count

// init + (end - init) * n / transition_steps, where n = count - transition_begin, clamped to [0, transition_steps].
struct LinearSchedule {
  double init_value = must_be_given;
  double end_value = must_be_given;
  int64_t transition_steps = 0;  // at least 1
  int64_t transition_begin = 0;  // at least 0
};
Schedule linear_schedule(const LinearSchedule& options);

// (init - end) * (1 - n / transition_steps)^power + end, with the same n.
struct PolynomialSchedule {
  double init_value = must_be_given;
  double end_value = must_be_given;
  double power = must_be_given;
  int64_t transition_steps = 0;  // at least 1
  int64_t transition_begin = 0;  // at least 0
};
Schedule polynomial_schedule(const PolynomialSchedule& options);

// init * decay_rate^((count - transition_begin) / transition_steps), and init before transition_begin; with staircase
// the exponent is rounded down. end_value, if given, bounds the result.
struct ExponentialDecay {
  double init_value = must_be_given;
  int64_t transition_steps = 0;       // at least 1
  double decay_rate = must_be_given;  // above 0
  int64_t transition_begin = 0;       // at least 0
  bool staircase = false;
  std::optional<double> end_value = std::nullopt;
};
Schedule exponential_decay(const ExponentialDecay& options);

// init * ((1 - alpha) * (0.5 * (1 + cos(pi * min(count, T) / T)))^exponent + alpha), T = decay_steps.
struct CosineDecay {
  double init_value = must_be_given;
  int64_t decay_steps = 0;  // at least 1
  double alpha = 0;
  double exponent = 1;
};
Schedule cosine_decay_schedule(const CosineDecay& options);

// From each boundary on, the previous value times the boundary's scale.
struct PiecewiseConstant {
  double init_value = must_be_given;
  std::map<int64_t, double> boundaries_and_scales = {};  // scales at least 0
};
Schedule piecewise_constant_schedule(const PiecewiseConstant& options);

// The same values at the boundaries, and between them a line or half a cosine.
enum class Interpolation { linear, cosine };
struct PiecewiseInterpolate {
  Interpolation interpolate_type = Interpolation::linear;
  double init_value = must_be_given;
  std::map<int64_t, double> boundaries_and_scales = {};  // both at least 0
};
Schedule piecewise_interpolate_schedule(const PiecewiseInterpolate& options);

// Linear from init to peak in warmup_steps, then peak.
struct WarmupConstant {
  double init_value = must_be_given;
  double peak_value = must_be_given;
  int64_t warmup_steps = 0;  // at least 1
};
Schedule warmup_constant_schedule(const WarmupConstant& options);

struct WarmupCosineDecay {
  double init_value = 0;
  double peak_value = must_be_given;
  int64_t warmup_steps = 0;
  int64_t decay_steps = 0;  // of the whole schedule: the warmup is part of it
  double end_value = 0;
  double exponent = 1;
};

// optax.warmup_cosine_decay_schedule, with w = warmup_steps, T = decay_steps - w:
//   count < w:  init + (peak - init) * count / w
//   else:       peak * ((1 - alpha) * (0.5 * (1 + cos(pi * min(count - w, T) / T)))^exponent + alpha), alpha = end /
//   peak
// Loshchilov and Hutter, "SGDR: stochastic gradient descent with warm restarts" (2017).
// Error (invalid_argument) unless 0 <= warmup_steps < decay_steps.
Schedule warmup_cosine_decay_schedule(const WarmupCosineDecay& options);

// Linear from init to peak in warmup_steps, then exponential_decay from peak, which counts from there.
struct WarmupExponentialDecay {
  double init_value = must_be_given;
  double peak_value = must_be_given;
  int64_t warmup_steps = 0;           // at least 0
  int64_t transition_steps = 0;       // at least 1
  double decay_rate = must_be_given;  // above 0
  int64_t transition_begin = 0;       // at least 0
  bool staircase = false;
  std::optional<double> end_value = std::nullopt;
};
Schedule warmup_exponential_decay_schedule(const WarmupExponentialDecay& options);

// Up from first = peak / div_factor to peak at pct_start of the steps, then down. linear_onecycle: linearly to first at
// pct_final, then to first / final_div_factor at the end. cosine_onecycle: half cosines, down to the latter directly.
// Smith and Topin, "Super-convergence: very fast training of neural networks using large learning rates" (2018).
struct LinearOnecycle {
  int64_t transition_steps = 0;  // at least 1
  double peak_value = must_be_given;
  double pct_start = 0.3, pct_final = 0.85;
  double div_factor = 25, final_div_factor = 1e4;
};
Schedule linear_onecycle_schedule(const LinearOnecycle& options);

struct CosineOnecycle {
  int64_t transition_steps = 0;  // at least 1
  double peak_value = must_be_given;
  double pct_start = 0.3;
  double div_factor = 25, final_div_factor = 1e4;
};
Schedule cosine_onecycle_schedule(const CosineOnecycle& options);

// Schedules one after the other: schedules[i + 1] begins at boundaries[i], and counts from there. Error
// (invalid_argument) unless there is one schedule more than boundaries, and the boundaries ascend.
Schedule join_schedules(std::vector<Schedule> schedules, std::vector<int64_t> boundaries);

// Warmups with cosine decays, each as long as its decay_steps, joined: SGDR's restarts.
Schedule sgdr_schedule(const std::vector<WarmupCosineDecay>& cycles);

}  // namespace tessera::optim
