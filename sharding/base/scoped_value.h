// ScopedValue: gives a variable of the thread, or of the process, another value while it lives.
#pragma once

#include <utility>

namespace tessera::detail {

// All that the library keeps per thread (the tape, the manual axes, the meter, ...) is set through it, so an exception
// leaves it as it was. Scopes end in the thread and in the reverse of the order in which they began.
template <class T>
class ScopedValue {
 public:
  ScopedValue(T& variable, T value) : variable_(variable), outer_(std::exchange(variable, std::move(value))) {}
  ~ScopedValue() { variable_ = std::move(outer_); }
  ScopedValue(const ScopedValue&) = delete;
  ScopedValue& operator=(const ScopedValue&) = delete;

  const T& outer() const { return outer_; }

 private:
  T& variable_;
  T outer_;
};

}  // namespace tessera::detail
