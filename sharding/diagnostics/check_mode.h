// TESSERA_CHECK=1: whether the library checks its own assumptions while it runs.
#pragma once

namespace tessera::detail {

// True if the environment variable TESSERA_CHECK is 1, or as the innermost CheckScope says. While it is false, reading
// it is all that checking costs.
extern bool checks;

// For tests: turns the checks on or off until it is destroyed.
class CheckScope {
 public:
  explicit CheckScope(bool on = true) : before_(checks) { checks = on; }
  ~CheckScope() { checks = before_; }
  CheckScope(const CheckScope&) = delete;
  CheckScope& operator=(const CheckScope&) = delete;

 private:
  bool before_;
};

}  // namespace tessera::detail
