// LateNumber: a number that may still lie on an accelerator, and is read when somebody asks for it.
#pragma once

#include <utility>

#include "sharding/array/array.h"

namespace tessera::optim::detail {

class LateNumber {
 public:
  LateNumber(double value = 0) : value_(value) {}
  explicit LateNumber(Array value);

  // Reads it from the accelerator, at the first call. NaN where its mesh has no values in this process.
  double& value() const;
  // The same, but an Error (invalid_argument), which begins with `verb`, where there are no values.
  double read(const char* verb) const;
  // The number of the moment: a replay of the step that this one was recorded in changes it.
  LateNumber now() const;
  // As a replicated float32 scalar in the memory where `x` lies.
  Array array(const Array& x) const;
  // What has been read so far.
  double& known() const { return value_; }
  operator double() const { return value(); }

 private:
  mutable double value_ = 0;
  mutable Array there_;
  bool recorded_ = false;
};

}  // namespace tessera::optim::detail
