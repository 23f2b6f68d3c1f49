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

// A function of the number of updates done before this one: 0 for the first update. Converts from a number or function:
//   adamw({.learning_rate = 3e-4})    adamw({.learning_rate = [](int64_t count) { return 1e-3 / (1 + count); }})
class Schedule {
 public:
  Schedule(double value) : constant_(value) {}
  template <class F>
  requires(!std::is_arithmetic_v<F> && !std::same_as<F, Schedule> && std::is_invocable_r_v<double, const F&, int64_t>)
      Schedule(F f)
      : value_(std::move(f)) {}

  double operator()(int64_t count) const { return constant_ ? *constant_ : value_(count); }
  // Returns the number if the schedule is a number.
  const std::optional<double>& constant() const { return constant_; }

 private:
  std::optional<double> constant_;
  std::function<double(int64_t)> value_;
};

// Marks an option without a default. Every schedule below takes its options by Optax's names.
// Errors of every schedule (invalid_argument): a number that is missing or not finite; steps outside the range in its
// comment.
inline constexpr double must_be_given = std::numeric_limits<double>::quiet_NaN();

Schedule constant_schedule(double value);  // returns `value` at every count

// Interpolates linearly: init + (end - init) * n / transition_steps, where n = count - transition_begin, clamped to [0,
// transition_steps].
struct LinearSchedule {
  double init_value = must_be_given;
  double end_value = must_be_given;
  int64_t transition_steps = 0;  // at least 1
  int64_t transition_begin = 0;  // at least 0
};
Schedule linear_schedule(const LinearSchedule& options);

// Interpolates by a power: (init - end) * (1 - n / transition_steps)^power + end, with n as in LinearSchedule.
struct PolynomialSchedule {
  double init_value = must_be_given;
  double end_value = must_be_given;
  double power = must_be_given;
  int64_t transition_steps = 0;  // at least 1
  int64_t transition_begin = 0;  // at least 0
};
Schedule polynomial_schedule(const PolynomialSchedule& options);

// Decays exponentially: init * decay_rate^((count - transition_begin) / transition_steps), and init before
// transition_begin. With staircase the exponent is rounded down. end_value, if given, bounds the result.
struct ExponentialDecay {
  double init_value = must_be_given;
  int64_t transition_steps = 0;       // at least 1
  double decay_rate = must_be_given;  // above 0
  int64_t transition_begin = 0;       // at least 0
  bool staircase = false;
  std::optional<double> end_value = std::nullopt;
};
Schedule exponential_decay(const ExponentialDecay& options);

// Decays as a cosine: init * ((1 - alpha) * (0.5 * (1 + cos(pi * min(count, T) / T)))^exponent + alpha), T =
// decay_steps.
struct CosineDecay {
  double init_value = must_be_given;
  int64_t decay_steps = 0;  // at least 1
  double alpha = 0;
  double exponent = 1;
};
Schedule cosine_decay_schedule(const CosineDecay& options);

// Multiplies the value by a scale at each boundary.
struct PiecewiseConstant {
  double init_value = must_be_given;
  std::map<int64_t, double> boundaries_and_scales = {};  // scales at least 0
};
Schedule piecewise_constant_schedule(const PiecewiseConstant& options);

// Interpolates between the values of piecewise_constant_schedule at the boundaries, linearly or by half a cosine.
enum class Interpolation { linear, cosine };
struct PiecewiseInterpolate {
  Interpolation interpolate_type = Interpolation::linear;
  double init_value = must_be_given;
  std::map<int64_t, double> boundaries_and_scales = {};  // both at least 0
};
Schedule piecewise_interpolate_schedule(const PiecewiseInterpolate& options);

// Rises linearly from init to peak in warmup_steps, then stays at peak.
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
  int64_t decay_steps = 0;  // steps of the complete schedule, including the warmup
  double end_value = 0;
  double exponent = 1;
};

// Computes optax.warmup_cosine_decay_schedule, with w = warmup_steps, T = decay_steps - w, alpha = end / peak:
//   count < w:  init + (peak - init) * count / w
//   else:       peak * ((1 - alpha) * (0.5 * (1 + cos(pi * min(count - w, T) / T)))^exponent + alpha)
// Loshchilov and Hutter, "SGDR: stochastic gradient descent with warm restarts" (2017).
// Error (invalid_argument) unless 0 <= warmup_steps < decay_steps.
Schedule warmup_cosine_decay_schedule(const WarmupCosineDecay& options);

// Rises linearly from init to peak in warmup_steps, then follows exponential_decay from peak, counted from there.
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

// Warmup-stable-decay (WSD): rises linearly from init to peak in warmup_steps, stays at peak for stable_steps, then
// decays to `end`. After n steps of the decay the value is end + (peak - end) f(x) with x = min(n / decay_steps, 1):
//   linear: f = 1 - x;  cosine: f = (1 + cos(pi x)) / 2;  one_minus_sqrt: f = 1 - sqrt(x)
// To train longer, resume before the decay with more stable_steps.
// Hu et al., "MiniCPM: unveiling the potential of small language models" (2024); the decay by 1 - sqrt: Haegele et al.,
// "Scaling laws and compute-optimal training beyond fixed training durations" (2024).
enum class DecayShape { linear, cosine, one_minus_sqrt };
struct WarmupStableDecay {
  double init_value = 0;
  double peak_value = must_be_given;
  int64_t warmup_steps = 0;  // at least 0
  int64_t stable_steps = 0;  // at least 0
  int64_t decay_steps = 0;   // at least 1
  double end_value = 0;
  DecayShape decay_shape = DecayShape::linear;
};
Schedule warmup_stable_decay_schedule(const WarmupStableDecay& options);

// One cycle: the value rises from first = peak / div_factor to peak at pct_start of the steps, then falls.
// linear_onecycle falls linearly to `first` at pct_final, then to first / final_div_factor at the end. cosine_onecycle
// uses half cosines and falls to first / final_div_factor directly.
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

// Joins schedules: schedules[i + 1] begins at boundaries[i], and counts from there. Errors (invalid_argument): a number
// of schedules that is not the number of boundaries plus one; boundaries that do not ascend.
Schedule join_schedules(std::vector<Schedule> schedules, std::vector<int64_t> boundaries);

// Joins warmups with cosine decays, each as long as its decay_steps: SGDR's restarts.
Schedule sgdr_schedule(const std::vector<WarmupCosineDecay>& cycles);

}  // namespace tessera::optim
