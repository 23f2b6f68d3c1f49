// PaddedFactors: which factors of a rule may be cut by mesh axes that do not divide them, and what is read there.
#pragma once

#include <vector>

#include "sharding/propagation/plan.h"
#include "sharding/propagation/run.h"

namespace tessera::detail {

class PaddedFactors {
 public:
  PaddedFactors(const BoundRule& rule, Padded padded);

  bool may_be_padded(int factor) const;
  // What a plan whose types are chosen says of padding.
  void note_in(Plan& plan) const;

 private:
  bool is_reduced(int factor) const;

  const BoundRule& rule_;
  Padded padded_;
  std::vector<bool> in_output_;
  std::vector<bool> beside_others_;  // some dim has other factors as well, and its blocks would cut through them
};

// Puts the operand with what the operation wants in its padding in its place. Without a gradient the zeros are read as
// they are.
void read_padded(Prepared& call, const CallSite& site, int i);

// Expands the operands of an elementwise operation that are broadcast over padding filled with ones. Their gradients
// are sums over padded dims. Padding must not enter these sums: for a divisor of 0 it would add 0 * (1 / 0), which is
// NaN.
void expand_over_padding(Prepared& call, const CallSite& site);

}  // namespace tessera::detail
