// Kind schedules: values of schedules at fixed counts, and schedules from their expressions.
#include <fmt/format.h>

#include <boost/json.hpp>
#include <cmath>

#include "sharding/json.h"
#include "tests/runner/optimizer_arguments.h"
#include "tests/runner/report.h"

namespace tessera::runner {

using optim::Schedule;

namespace {

optim::WarmupCosineDecay warmup_cosine(Arguments& a) {
  optim::WarmupCosineDecay o;
  a("init_value", o.init_value)("peak_value", o.peak_value)("warmup_steps", o.warmup_steps);
  a("decay_steps", o.decay_steps)("end_value", o.end_value)("exponent", o.exponent);
  return o;
}

Schedule joined(Arguments& a) {
  std::vector<Schedule> schedules;
  std::vector<int64_t> boundaries;
  for (const Json& s : a.at("schedules").as_array()) schedules.push_back(schedule_of(s));
  for (const Json& b : a.at("boundaries").as_array()) boundaries.push_back(b.to_number<int64_t>());
  return optim::join_schedules(schedules, boundaries);
}

Schedule sgdr(Arguments& a) {
  std::vector<optim::WarmupCosineDecay> cycles;
  for (const Json& kwargs : a.at("cosine_kwargs").as_array()) {
    Arguments cycle(kwargs.as_object());
    cycles.push_back(warmup_cosine(cycle));
  }
  return optim::sgdr_schedule(cycles);
}

const Builders<Schedule>& builders() {
  static const Builders<Schedule> table = {
      {"constant_schedule", [](Arguments& a) { return optim::constant_schedule(a.number("value")); }},
      {"linear_schedule",
       [](Arguments& a) {
         optim::LinearSchedule o;
         a("init_value", o.init_value)("end_value", o.end_value);
         a("transition_steps", o.transition_steps)("transition_begin", o.transition_begin);
         return optim::linear_schedule(o);
       }},
      {"polynomial_schedule",
       [](Arguments& a) {
         optim::PolynomialSchedule o;
         a("init_value", o.init_value)("end_value", o.end_value)("power", o.power);
         a("transition_steps", o.transition_steps)("transition_begin", o.transition_begin);
         return optim::polynomial_schedule(o);
       }},
      {"exponential_decay",
       [](Arguments& a) {
         optim::ExponentialDecay o;
         a("init_value", o.init_value)("transition_steps", o.transition_steps)("decay_rate", o.decay_rate);
         a("transition_begin", o.transition_begin)("staircase", o.staircase)("end_value", o.end_value);
         return optim::exponential_decay(o);
       }},
      {"cosine_decay_schedule",
       [](Arguments& a) {
         optim::CosineDecay o;
         a("init_value", o.init_value)("decay_steps", o.decay_steps)("alpha", o.alpha)("exponent", o.exponent);
         return optim::cosine_decay_schedule(o);
       }},
      {"piecewise_constant_schedule",
       [](Arguments& a) {
         optim::PiecewiseConstant o;
         a("init_value", o.init_value)("boundaries_and_scales", o.boundaries_and_scales);
         return optim::piecewise_constant_schedule(o);
       }},
      {"piecewise_interpolate_schedule",
       [](Arguments& a) {
         optim::PiecewiseInterpolate o;
         a("interpolate_type", o.interpolate_type)("init_value", o.init_value);
         a("boundaries_and_scales", o.boundaries_and_scales);
         return optim::piecewise_interpolate_schedule(o);
       }},
      {"warmup_constant_schedule",
       [](Arguments& a) {
         optim::WarmupConstant o;
         a("init_value", o.init_value)("peak_value", o.peak_value)("warmup_steps", o.warmup_steps);
         return optim::warmup_constant_schedule(o);
       }},
      {"warmup_cosine_decay_schedule",
       [](Arguments& a) { return optim::warmup_cosine_decay_schedule(warmup_cosine(a)); }},
      {"warmup_exponential_decay_schedule",
       [](Arguments& a) {
         optim::WarmupExponentialDecay o;
         a("init_value", o.init_value)("peak_value", o.peak_value)("warmup_steps", o.warmup_steps);
         a("transition_steps", o.transition_steps)("decay_rate", o.decay_rate);
         a("transition_begin", o.transition_begin)("staircase", o.staircase)("end_value", o.end_value);
         return optim::warmup_exponential_decay_schedule(o);
       }},
      {"linear_onecycle_schedule",
       [](Arguments& a) {
         optim::LinearOnecycle o;
         a("transition_steps", o.transition_steps)("peak_value", o.peak_value)("pct_start", o.pct_start);
         a("pct_final", o.pct_final)("div_factor", o.div_factor)("final_div_factor", o.final_div_factor);
         return optim::linear_onecycle_schedule(o);
       }},
      {"cosine_onecycle_schedule",
       [](Arguments& a) {
         optim::CosineOnecycle o;
         a("transition_steps", o.transition_steps)("peak_value", o.peak_value)("pct_start", o.pct_start);
         a("div_factor", o.div_factor)("final_div_factor", o.final_div_factor);
         return optim::cosine_onecycle_schedule(o);
       }},
      {"join_schedules", joined},
      {"sgdr_schedule", sgdr}};
  return table;
}

}  // namespace

Schedule schedule_of(const Json& expression) {
  if (expression.is_number()) return expression.to_number<double>();
  return build(builders(), expression);
}

void run_schedules(const std::filesystem::path& file, Report& report) {
  const Json all = parse_json_file(file);
  const auto& steps = all.at("steps").as_array();
  for (const auto& [name, c] : all.at("schedules").as_object()) {
    const std::string where = std::string(name);
    try {
      const Schedule schedule = schedule_of(c.at("expr"));
      for (size_t i = 0; i < steps.size(); ++i) {
        const double expected = c.at("values").at(i).to_number<double>();
        report.near(schedule(steps[i].to_number<int64_t>()), expected, 1e-5 * std::abs(expected) + 1e-8,
                    fmt::format("{} at {}", where, steps[i].to_number<int64_t>()));
      }
    } catch (const std::exception& error) {
      report.check(false, where, "a schedule", error.what());
    }
  }
}

}  // namespace tessera::runner
