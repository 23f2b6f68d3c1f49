// PaddedFactors: which factors of a rule may be cut by mesh axes that do not divide them, and what is read there.
#pragma once

#include <vector>

#include "sharding/propagation/plan.h"

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

}  // namespace tessera::detail
