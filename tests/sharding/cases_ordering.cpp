// The validator's cases of sorting and what follows from it.
#include "tests/sharding/cases.h"

namespace tessera::testing {

std::vector<Case> ordering_cases() { return {}; }

}  // namespace tessera::testing
