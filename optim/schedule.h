// Schedules: numbers that depend on the count of updates, with Optax's names, defaults and formulas.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <type_traits>
#include <utility>

namespace tessera::optim {

// A function of the count of updates done before this one: the first update reads it at 0. A number is a schedule too:
// adamw({.learning_rate = 3e-4}), and so is any function:
// adamw({.learning_rate = [](int64_t count) { return 1e-3 / (1 + count); }}).
class Schedule {
 public:
  Schedule(double value) : value_([value](int64_t) { return value; }) {}
  template <class F>
  requires(std::is_class_v<F> && !std::same_as<F, Schedule> && std::is_invocable_r_v<double, const F&, int64_t>)
      Schedule(F f)
      : value_(std::move(f)) {}

  double operator()(int64_t count) const { return value_(count); }

 private:
  std::function<double(int64_t)> value_;
};

Schedule constant_schedule(double value);

struct WarmupCosineDecay {
  double init_value = 0;
  double peak_value = std::numeric_limits<double>::quiet_NaN();  // must be given
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
// Errors (bad_argument): no peak_value; unless 0 <= warmup_steps < decay_steps.
Schedule warmup_cosine_decay_schedule(const WarmupCosineDecay& options);

}  // namespace tessera::optim
