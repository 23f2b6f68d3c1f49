// Single operations beside the ATen calls that they make, written by hand.
#pragma once

#include <vector>

#include "tests/sharding/operations/cases.h"

namespace tessera::benchmarks {

// For the operations that the validator's cases combine with others, or beside another way to the same values: here
// both sides do the same work, down to the casts to JAX's element types. What only Tessera does, the check that ids lie
// in their range, is not among the calls by hand.
std::vector<testing::Case> single_calls();

}  // namespace tessera::benchmarks
