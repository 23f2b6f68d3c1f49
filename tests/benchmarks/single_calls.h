// Single operations, each with the same ATen calls written by hand.
#pragma once

#include <vector>

#include "tests/sharding/operations/cases.h"

namespace tessera::benchmarks {

// Returns cases for operations that the validator's cases combine with others or compare with a different computation.
// The operation and the ATen calls do the same work here, including the casts to JAX's element types. Only Tessera
// checks the range of ids; that is not part of the hand-written calls.
std::vector<testing::Case> single_calls();

}  // namespace tessera::benchmarks
