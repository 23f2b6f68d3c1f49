// DeviceScalar and FiniteGate: numbers and decisions that stay on an accelerator, so that the host does not wait.
#pragma once

#include <cstdint>
#include <functional>

#include "optim/transform/transform.h"

namespace tessera::optim::detail {

// A number that may be stored on an accelerator. The host reads it at first use.
class DeviceScalar {
 public:
  DeviceScalar(double value = 0) : value_(value) {}
  explicit DeviceScalar(Array value);

  // Reads the number from the accelerator at the first call. Returns NaN if its mesh has no values in this process.
  double& value() const;
  // Returns value(). Error (invalid_argument), which begins with `verb`: its mesh has no values in this process.
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
  mutable Array on_device_;
  bool recorded_ = false;
};

// The counts of an ApplyIfFiniteState that are stored on the accelerator. Absent arrays: the host has the counts.
struct DeviceCounts {
  Array in_a_row, total, finite;  // int32 and bool scalars
  Array rejected;       // int32: updates that were not applied, but that the counts of the inner state include
  int64_t updates = 0;  // updates since the host read the counts
};

// Returns the number of elements that are not finite, as a replicated scalar. It takes one all-reduce.
Array not_finite(const Arrays& arrays);

class FiniteGate {
 public:
  // Decides whether these updates are applied. If `before` has no counts, uses the host's counts `in_a_row` and
  // `total`. `read` copies the counts to the host.
  FiniteGate(const Arrays& updates, DeviceCounts before, int64_t in_a_row, int64_t total, int64_t max_in_a_row,
             std::function<void()> read);

  // Selects `next` if the update is applied, else `before`.
  void select(const Arrays& next, const Arrays& before) const;
  DeviceScalar select(const DeviceScalar& next, const DeviceScalar& before) const;
  // Replaces updates by zeros if the update is not applied.
  void select(const Arrays& updates) const;
  // Waits for the counts. Call it before host code that depends on them.
  void read();

  const Array& applies() const { return applies_; }           // bool, a replicated scalar
  const Array& rejected() const { return before_.rejected; }  // count before this update
  int64_t updates() const { return before_.updates; }
  DeviceCounts next() const;

 private:
  DeviceCounts before_;
  Array finite_, in_a_row_, total_, applies_;
  std::function<void()> read_;
};

}  // namespace tessera::optim::detail
