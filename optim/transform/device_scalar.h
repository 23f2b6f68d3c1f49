// DeviceScalar: a number that may be stored on an accelerator, and is read on first use.
#pragma once

#include <utility>

#include "sharding/array/array.h"

namespace tessera::optim::detail {

class DeviceScalar {
 public:
  DeviceScalar(double value = 0) : value_(value) {}
  explicit DeviceScalar(Array value);

  // Reads the number from the accelerator at the first call. NaN if its mesh has no values in this process.
  double& value() const;
  // Returns value(). Error (invalid_argument), which begins with `verb`: there are no values.
  double read(const char* verb) const;
  // Returns a copy that later replays of the recorded step do not change.
  DeviceScalar now() const;
  // Returns the number as a replicated float32 scalar on the device of `x`.
  Array array(const Array& x) const;
  // Returns the value without reading from the accelerator.
  double& known() const { return value_; }
  operator double() const { return value(); }

 private:
  mutable double value_ = 0;
  mutable Array there_;
  bool recorded_ = false;
};

}  // namespace tessera::optim::detail
