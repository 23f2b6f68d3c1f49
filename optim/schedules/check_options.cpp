// The checks of settings, and their messages.
#include "optim/schedules/check_options.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <string>

#include "sharding/base/fail.h"

namespace tessera::optim::detail {

namespace {

void refuse(const char* verb, const std::string& name, double given, const std::string& expected) {
  fail(ErrorKind::invalid_argument, verb, "{}: {} given, expected {}.", name, given, expected);
}

double value_at(const Schedule& schedule, int64_t count, const char* verb, const char* name) try {
  return schedule(count);
} catch (const std::bad_function_call&) {
  fail(ErrorKind::invalid_argument, verb,
       "{}: an empty function given, expected a number or a schedule. Nothing was updated.", name);
}

}  // namespace

void check_options(const char* verb, Settings decays, Settings bounds) {
  for (const Setting& decay : decays)
    if (!(decay.value >= 0 && decay.value < 1))
      refuse(verb, decay.name, decay.value, fmt::format("0 <= {} < 1", decay.name));
  for (const Setting& bound : bounds)
    if (!(bound.value >= 0 && std::isfinite(bound.value)))
      refuse(verb, bound.name, bound.value, fmt::format("{} >= 0", bound.name));
}

void blame(const char* verb, const Error& error, std::initializer_list<std::pair<const char*, const char*>> names) {
  std::string words = error.what();
  words.erase(0, words.find("] ") + 2);
  for (const auto& [theirs, ours] : names) {
    if (!words.starts_with(fmt::format("{}: ", theirs))) continue;
    for (size_t at = words.find(theirs); at != std::string::npos; at = words.find(theirs, at + std::strlen(ours)))
      words.replace(at, std::strlen(theirs), ours);
    break;
  }
  throw Error(error.kind(), fmt::format("[{}] {}", verb, words));
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
  if (given < least) fail(ErrorKind::invalid_argument, verb, "{}: {} given, expected at least {}.", name, given, least);
  return given;
}

void check_positive(const char* verb, const char* name, double value) {
  if (!(value > 0 && std::isfinite(value))) refuse(verb, name, value, fmt::format("{} > 0", name));
}

void check_finite(const char* verb, const char* name, double value) {
  if (!std::isfinite(value)) refuse(verb, name, value, "a number");
}

}  // namespace tessera::optim::detail
