// The validator's cases once more with dims of 5, 7 and 13 on axes of 2, 3, 4 and 8, which divide none of them.
#pragma once

#include "tests/sharding/operations/cases.h"

namespace tessera::testing {

struct PaddedCase {
  Function function;  // of dims of 5, 7 and 13; where it takes none of them, as it was
  std::vector<MeshAxis> axes;
  std::vector<PartitionSpec> specs;  // at least one of them pads
};

// A fixed sample of a case's placements: on each mesh each size that its function takes is padded at least once.
std::vector<PaddedCase> padded_cases(const Case& one);

// The sizes of dims that these placements pad, among 5, 7 and 13.
std::set<int64_t> padded_sizes(const Function& f, const std::vector<PartitionSpec>& specs);

// The value and the gradients on one device, of several processes on one of each.
Outcome on_one_device(const Function& f);

}  // namespace tessera::testing
