// FiniteGate: decides on an accelerator whether an update is applied, so that the host reads nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "optim/transform/device_scalar.h"
#include "optim/transform/transform.h"

namespace tessera::optim::detail {

// Counts of an ApplyIfFiniteState that are stored on the accelerator. Absent: the host has the counts.
struct DeviceCounts {
  Array in_a_row, total, finite;  // int32 and bool scalars
  Array rejected;                 // int32: updates that were not applied, but are in the counts of the inner state
  int64_t updates = 0;            // since the host read them
};

// Returns how many elements are not finite, as a replicated scalar. One all-reduce.
Array not_finite(const Arrays& arrays);

class FiniteGate {
 public:
  // Decides on these updates. The counts `in_a_row` and `total` are used if `before` has none. `read` gives the host
  // the counts.
  FiniteGate(const Arrays& updates, DeviceCounts before, int64_t in_a_row, int64_t total, int64_t max_in_a_row,
             std::function<void()> read);

  // Selects `next` if the update is applied, else `before`.
  void select(const Arrays& next, const Arrays& before) const;
  DeviceScalar select(const DeviceScalar& next, const DeviceScalar& before) const;
  // Replaces updates by zeros if the update is not applied.
  void select(const Arrays& updates) const;
  // Waits for the counts, for host code that depends on them.
  void read();

  const Array& applies() const { return applies_; }           // bool, a replicated scalar
  const Array& rejected() const { return before_.rejected; }  // of the updates before this one
  int64_t updates() const { return before_.updates; }
  DeviceCounts next() const;

 private:
  DeviceCounts before_;
  Array finite_, in_a_row_, total_, applies_;
  std::function<void()> read_;
};

}  // namespace tessera::optim::detail
