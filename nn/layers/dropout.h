// Dropout: sets elements to zero at random, by a key that the caller passes.
#pragma once

#include <optional>

#include "sharding/operations/operand.h"
#include "sharding/random/key.h"

namespace tessera::nn {

// (...) -> (...): each element is zero with probability `rate`, else divided by 1 - rate. The same key gives the same
// zeros on every mesh, bit for bit, so give each call its own key (split, fold_in). With inference = true or rate 0, x
// is returned unchanged and no key is needed. The default rate is that of Equinox and PyTorch. Srivastava et al.,
// "Dropout: a simple way to prevent neural networks from overfitting" (2014).
//   x = dropout(x, key);
// Errors (invalid_argument): no key where one is needed, a rate outside [0, 1].
struct Dropout {
  double rate = 0.5;
  bool inference = false;

  Array operator()(Operand x, const std::optional<Key>& key = std::nullopt) const;
  // Whether a call changes anything, and so needs a key.
  bool is_active() const { return !inference && rate != 0; }
};

}  // namespace tessera::nn
