// Checks an optimizer's settings; the errors name the setting and the optimizer.
#include "optim/schedules/check_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sharding/base/fail.h"

namespace tessera::optim::detail {

namespace {

thread_local const SettingNames* current_names = nullptr;

// Throws an error that names the setting. `expected` is a format string that takes the setting's name.
void refuse(const char* verb, const char* name, double given, fmt::format_string<const char*&> expected) {
  const char* ours = SettingNames::name_for(name);
  fail(ErrorKind::invalid_argument, SettingNames::verb_for(verb), "{}: {} given, expected {}.", ours, given,
       fmt::format(expected, ours));
}

double value_at(const Schedule& schedule, int64_t count, const char* verb, const char* name) try {
  return schedule(count);
} catch (const std::bad_function_call&) {
  fail(ErrorKind::invalid_argument, verb,
       "{}: an empty function given, expected a number or a schedule. Nothing was updated.", name);
}

}  // namespace

SettingNames::SettingNames(const char* verb, Names names)
    : verb_(verb), names_(std::move(names)), scope_(current_names, this) {}

const char* SettingNames::verb_for(const char* verb) {
  for (const SettingNames* s = current_names; s; s = s->scope_.outer()) verb = s->verb_;
  return verb;
}

const char* SettingNames::name_for(const char* name) {
  for (const SettingNames* s = current_names; s; s = s->scope_.outer()) {
    const auto entry = std::find_if(s->names_.begin(), s->names_.end(), [&](const auto& n) { return n.first == name; });
    if (entry != s->names_.end()) name = entry->second;
  }
  return name;
}

void check_options(const char* verb, Settings decays, Settings bounds) {
  for (const Setting& decay : decays)
    if (!(decay.value >= 0 && decay.value < 1)) refuse(verb, decay.name, decay.value, "0 <= {} < 1");
  for (const Setting& bound : bounds)
    if (!(bound.value >= 0 && std::isfinite(bound.value))) refuse(verb, bound.name, bound.value, "{} >= 0");
}

void check_rate(const char* verb, const char* name, const Schedule& rate) {
  if (rate.constant()) check_finite(verb, name, *rate.constant());
}

void check_constant_decay(const char* verb, const char* name, const Schedule& schedule) {
  if (schedule.constant()) check_options(verb, {{name, *schedule.constant()}}, {});
}

void check_constant_bound(const char* verb, const char* name, const Schedule& schedule) {
  if (schedule.constant()) check_options(verb, {}, {{name, *schedule.constant()}});
}

double value_of(const Schedule& schedule, int64_t count, const char* verb, const char* name) {
  if (count < 0)
    fail(ErrorKind::invalid_argument, verb, "{}: the state's count is {}, expected 0 or more. Nothing was updated.",
         name, count);
  const double value = value_at(schedule, count, verb, name);
  if (!std::isfinite(value))
    fail(ErrorKind::invalid_argument, verb,
         "{}: the schedule is {} at count {}, expected a number. Nothing was updated.", name, value, count);
  return value;
}

int64_t at_least(int64_t least, const char* verb, const char* name, int64_t given) {
  if (given < least)
    fail(ErrorKind::invalid_argument, SettingNames::verb_for(verb), "{}: {} given, expected at least {}.",
         SettingNames::name_for(name), given, least);
  return given;
}

void check_positive(const char* verb, const char* name, double value) {
  if (!(value > 0 && std::isfinite(value))) refuse(verb, name, value, "{} > 0");
}

void check_finite(const char* verb, const char* name, double value) {
  if (!std::isfinite(value)) refuse(verb, name, value, "a number");
}

}  // namespace tessera::optim::detail
