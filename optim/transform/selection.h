// Selection: an update of which an accelerator, not the host, decides whether it is applied.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "optim/transform/transform.h"

namespace tessera::optim::detail {

// What lies on the accelerator of the counts of an ApplyIfFiniteState; absent where the host knows them.
struct LateCounts {
  Array in_a_row, total, finite;  // int32 and bool scalars
  Array rejected;       // int32: updates that the counts of the inner state contain, and that were not applied
  int64_t updates = 0;  // since the host knew them
};

// How many elements are not finite, a replicated scalar. One all-reduce.
Array not_finite(const Arrays& arrays);

class Selection {
 public:
  // Decides on these updates. `known`: in a row and in all, where `before` does not say.
  Selection(const Arrays& updates, LateCounts before, int64_t in_a_row, int64_t total, int64_t max_in_a_row,
            std::function<void()> read);

  // Makes `next` what it was before, where the update is not applied.
  void select(const Arrays& next, const Arrays& before) const;
  // Makes updates zeros where they are not applied.
  void select(const Arrays& updates) const;
  // Lets the host know the counts, which waits: for what depends on them there.
  void read();

  const Array& applies() const { return applies_; }           // bool, a replicated scalar
  const Array& rejected() const { return before_.rejected; }  // of the updates before this one
  int64_t updates() const { return before_.updates; }
  LateCounts next() const;

 private:
  LateCounts before_;
  Array finite_, in_a_row_, total_, applies_;
  std::function<void()> read_;
};

}  // namespace tessera::optim::detail
