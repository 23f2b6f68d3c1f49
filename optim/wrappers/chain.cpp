// Checks of the names and states of chains.
#include "optim/wrappers/chain.h"

#include "sharding/base/fail.h"

namespace tessera::optim::detail {

void no_state_of_optional() {
  fail(ErrorKind::invalid_argument, "update",
       "the state has no part for an optional transform (momentum, clipping, ...) that is used now, expected one. Make "
       "a new state with init.");
}

void check_names(const char* verb, const std::string* names, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (names[i].empty())
      fail(ErrorKind::invalid_argument, verb, "an empty name given, expected one for each transform.");
    for (size_t j = 0; j < i; ++j)
      if (names[i] == names[j])
        fail(ErrorKind::invalid_argument, verb, "\"{}\" given twice, expected each name once.", names[i]);
  }
}

}  // namespace tessera::optim::detail
