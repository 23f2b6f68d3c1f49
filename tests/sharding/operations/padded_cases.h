// The validator's cases with dimensions of 5, 7 and 13, which the axes of size 2, 3, 4 and 8 do not divide.
#pragma once

#include "tests/sharding/operations/cases.h"

namespace tessera::testing {

struct PaddedCase {
  Function function;  // with dimensions of 5, 7 and 13 if it allows them
  std::vector<MeshAxis> axes;
  std::vector<PartitionSpec> specs;  // at least one of them pads
};

// Returns a fixed sample of a case's shardings: each size that its function allows is padded at least once on each
// mesh.
std::vector<PaddedCase> padded_cases(const Case& one);

// Returns which of the sizes 5, 7 and 13 these shardings pad.
std::set<int64_t> padded_sizes(const Function& f, const std::vector<PartitionSpec>& specs);

// Returns the value and the gradients on one device (on one device of each process).
Outcome on_one_device(const Function& f);

}  // namespace tessera::testing
