// All cases of the validator, in one list.
#include "tests/sharding/operations/cases.h"

namespace tessera::testing {

std::vector<Case> all_cases() {
  std::vector<Case> all;
  for (const auto subject : {elementwise_cases, linear_algebra_cases, reduction_cases, ordering_cases, indexing_cases,
                             neural_cases, shape_cases, custom_cases})
    for (Case& one : subject()) all.push_back(std::move(one));
  return all;
}

}  // namespace tessera::testing
