// The formulas of the schedules.
#include "optim/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "sharding/error.h"

namespace tessera::optim {

Schedule constant_schedule(double value) { return value; }

Schedule warmup_cosine_decay_schedule(const WarmupCosineDecay& options) {
  if (std::isnan(options.peak_value))
    fail(ErrorKind::bad_argument, "warmup_cosine_decay_schedule", "no peak_value given, expected a number.");
  if (options.warmup_steps < 0 || options.warmup_steps >= options.decay_steps)
    fail(
        ErrorKind::bad_argument, "warmup_cosine_decay_schedule",
        fmt::format("warmup_steps = {}, decay_steps = {}, expected 0 <= warmup_steps < decay_steps: decay_steps is the "
                    "length of the whole schedule, warmup included.",
                    options.warmup_steps, options.decay_steps));
  return [o = options](int64_t count) {
    if (count < o.warmup_steps)
      return o.init_value +
             (o.peak_value - o.init_value) * static_cast<double>(count) / static_cast<double>(o.warmup_steps);
    const auto steps = static_cast<double>(o.decay_steps - o.warmup_steps);
    const double done = std::min(static_cast<double>(count - o.warmup_steps), steps) / steps;
    const double cosine = 0.5 * (1 + std::cos(std::numbers::pi * done));
    const double alpha = o.peak_value == 0 ? 0 : o.end_value / o.peak_value;
    return o.peak_value * ((1 - alpha) * std::pow(cosine, o.exponent) + alpha);
  };
}

}  // namespace tessera::optim
