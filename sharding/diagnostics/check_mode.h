// TESSERA_CHECK=1: whether the library looks, while it runs, at what it relies on.
#pragma once

namespace tessera::detail {

// Whether to look: the environment variable TESSERA_CHECK is 1, or a CheckScope says so. Where not, this is all it
// costs.
extern bool checks;

// For tests: looks, or does not, until it is destroyed.
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
