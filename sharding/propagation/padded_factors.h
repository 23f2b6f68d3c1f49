// Padding in operations: which factors may be padded, what the operation reads there, and how results are cleared.
#pragma once

#include <vector>

#include "sharding/propagation/plan.h"
#include "sharding/propagation/run.h"

namespace tessera::detail {

class PaddedFactors {
 public:
  PaddedFactors(const BoundRule& rule, Padded padded);

  bool may_be_padded(int factor) const;
  // Records the padding in a plan whose types are chosen.
  void note_in(Plan& plan) const;

 private:
  bool is_reduced(int factor) const;

  const BoundRule& rule_;
  Padded padded_;
  std::vector<bool> in_output_;
  std::vector<bool> beside_others_;  // some dimension has other factors too, whose blocks would cross its padding
};

// Replaces operand i by an array with the values that the operation reads in its padding. Without a gradient, zeros
// need no replacement.
void read_padded(Prepared& call, const CallSite& site, int i);

// Expands operands of an elementwise operation that are broadcast over padding filled with ones. Their gradients are
// sums over padded dimensions, which padding must not enter: for a divisor of 0 it would add 0 * (1 / 0), which is NaN.
void expand_over_padding(Prepared& call, const CallSite& site);

// Sets the result's padding to zeros. Call it only if call.plan->is_padded.
void clear_padding(const Prepared& call, ArrayImpl& result);

}  // namespace tessera::detail
