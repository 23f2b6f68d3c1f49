// Reference files of kind "schedules": the values of schedules at given counts, and builders of schedules.
#include <fmt/format.h>

#include <boost/json.hpp>
#include <cmath>

#include "sharding/files/json.h"
#include "tests/runner/optimizer_arguments.h"
#include "tests/runner/report.h"

namespace tessera::runner {

using optim::Schedule;

namespace {

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
    cycles.push_back(cycle.options<optim::WarmupCosineDecay>());
  }
  return optim::sgdr_schedule(cycles);
}

const Builders<Schedule>& builders() {
  static const Builders<Schedule> table = {
      {"constant_schedule", [](Arguments& a) { return optim::constant_schedule(a.number("value")); }},
      {"linear_schedule", from_options(optim::linear_schedule)},
      {"polynomial_schedule", from_options(optim::polynomial_schedule)},
      {"exponential_decay", from_options(optim::exponential_decay)},
      {"cosine_decay_schedule", from_options(optim::cosine_decay_schedule)},
      {"piecewise_constant_schedule", from_options(optim::piecewise_constant_schedule)},
      {"piecewise_interpolate_schedule", from_options(optim::piecewise_interpolate_schedule)},
      {"warmup_constant_schedule", from_options(optim::warmup_constant_schedule)},
      {"warmup_cosine_decay_schedule", from_options(optim::warmup_cosine_decay_schedule)},
      {"warmup_exponential_decay_schedule", from_options(optim::warmup_exponential_decay_schedule)},
      {"warmup_stable_decay_schedule", from_options(optim::warmup_stable_decay_schedule)},
      {"linear_onecycle_schedule", from_options(optim::linear_onecycle_schedule)},
      {"cosine_onecycle_schedule", from_options(optim::cosine_onecycle_schedule)},
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
