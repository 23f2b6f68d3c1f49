// Checks of the settings of optimizers, made where an optimizer is made.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "optim/schedules/schedule.h"
#include "sharding/base/scoped_value.h"

namespace tessera::optim::detail {

struct Setting {
  const char* name;
  double value;
};
using Settings = std::initializer_list<Setting>;

// Errors (invalid_argument), "[adamw] b1: 1 given, expected 0 <= b1 < 1.": a decay outside [0, 1), a bound that is
// negative or NaN.
void check_options(const char* verb, Settings decays, Settings bounds);

// While it lives, the checks below name the optimizer that is being made in place of its transforms, and its settings
// in place of theirs: {{"decay", "momentum"}}. The outermost verb counts.
class SettingNames {
 public:
  using Names = std::vector<std::pair<std::string_view, const char*>>;
  explicit SettingNames(const char* verb, Names names = {});

  static const char* verb_for(const char* verb);
  static const char* name_for(const char* name);

 private:
  const char* verb_;
  Names names_;
  tessera::detail::ScopedValue<const SettingNames*> scope_;
};

// Error (invalid_argument): a constant rate that is not finite. Other schedules are checked at each update instead.
void check_rate(const char* verb, const char* name, const Schedule& rate);

// check_options for a constant schedule; other schedules are checked at each update instead.
void check_constant_decay(const char* verb, const char* name, const Schedule& schedule);
void check_constant_bound(const char* verb, const char* name, const Schedule& schedule);

// The schedule's value at `count`, for update number `count` + 1. Error (invalid_argument): not finite, or count below
// 0.
double value_of(const Schedule& schedule, int64_t count, const char* verb, const char* name);

// The number given. Error (invalid_argument): less than `least`.
int64_t at_least(int64_t least, const char* verb, const char* name, int64_t given);

// Errors (invalid_argument) unless value > 0, or finite.
void check_positive(const char* verb, const char* name, double value);
void check_finite(const char* verb, const char* name, double value);

}  // namespace tessera::optim::detail
