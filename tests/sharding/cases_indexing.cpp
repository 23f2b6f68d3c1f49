// The validator's cases of lookups, scatters and one_hot.
#include "tests/sharding/cases.h"

namespace tessera::testing {

std::vector<Case> indexing_cases() { return {}; }

}  // namespace tessera::testing
