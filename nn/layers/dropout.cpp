// What Dropout computes: zeros and scaled values while training, its input otherwise.
#include "nn/layers/dropout.h"

#include "sharding/base/caller.h"
#include "sharding/base/error.h"
#include "sharding/random/random.h"

namespace tessera::nn {

Array Dropout::operator()(Operand x, const std::optional<Key>& key) const {
  const CallerScope caller(x.where());
  if (!is_active()) return x.array();
  if (!key)
    fail(ErrorKind::invalid_argument, "Dropout",
         "no key given, expected one: dropout(x, key). For evaluation set inference = true.");
  return dropout(*key, x, rate);
}

}  // namespace tessera::nn
