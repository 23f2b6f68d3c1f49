// LateNumber: a number that may still lie on an accelerator, and is read when somebody asks for it.
#pragma once

#include <utility>

#include "sharding/array/array.h"

namespace tessera::optim::detail {

class LateNumber {
 public:
  LateNumber(double value = 0) : value_(value) {}
  explicit LateNumber(Array value) : there_(std::move(value)) {}

  // Reads it from the accelerator, at the first call.
  double& value() const;
  // What has been read so far.
  double& known() const { return value_; }
  operator double() const { return value(); }

 private:
  mutable double value_ = 0;
  mutable Array there_;
};

}  // namespace tessera::optim::detail
