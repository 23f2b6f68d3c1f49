// Checks of an optimizer's settings, made when the optimizer is made.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "optim/schedules/schedule.h"
#include "sharding/base/thread_state.h"

namespace tessera::optim::detail {

struct Setting {
  const char* name;
  double value;
};
using Settings = std::initializer_list<Setting>;

// Throws Error (invalid_argument), "[adamw] b1: 1 given, expected 0 <= b1 < 1.", for a decay outside [0, 1) and for a
// bound that is negative or NaN.
void check_options(const char* verb, Settings decays, Settings bounds);

// Replaces the transform's name in messages of the checks below by `verb`, the optimizer that is being made, as long as
// this object exists. Settings are renamed by `names`: {{"decay", "momentum"}}. If objects are nested, the `verb` of
// the outermost one is used.
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

// Throws Error (invalid_argument) for a constant rate that is not finite. Other schedules are checked at each update.
void check_rate(const char* verb, const char* name, const Schedule& rate);

// Apply check_options to a constant schedule. Other schedules are checked at each update.
void check_constant_decay(const char* verb, const char* name, const Schedule& schedule);
void check_constant_bound(const char* verb, const char* name, const Schedule& schedule);

// Returns the schedule's value at `count`, for update number `count` + 1. Error (invalid_argument): a value that is not
// finite; count below 0.
double value_of(const Schedule& schedule, int64_t count, const char* verb, const char* name);

// Returns `given`. Error (invalid_argument): it is less than `least`.
int64_t at_least(int64_t least, const char* verb, const char* name, int64_t given);

// Throw Error (invalid_argument) unless the value is > 0, or finite.
void check_positive(const char* verb, const char* name, double value);
void check_finite(const char* verb, const char* name, double value);

}  // namespace tessera::optim::detail
