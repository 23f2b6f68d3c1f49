// The cases of the validator: for every registered operation, functions that are held to the law on every placement.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "tests/sharding/expressions.h"
#include "tests/sharding/law.h"

namespace tessera::testing {

// One function and the registered operations whose behaviour it covers (their names). Of an operation with several
// results, one case for each result.
struct Case {
  std::vector<std::string> operations;
  Function function;
};

inline void PrintTo(const Case& one, std::ostream* out) { *out << one.function.name; }  // for GoogleTest

// By subject, each in a file of its own: cases_elementwise.cpp, ...
std::vector<Case> elementwise_cases();
std::vector<Case> linear_algebra_cases();
std::vector<Case> reduction_cases();
std::vector<Case> ordering_cases();
std::vector<Case> indexing_cases();
std::vector<Case> neural_cases();
std::vector<Case> shape_cases();

std::vector<Case> all_cases();
std::string name_of_case(const ::testing::TestParamInfo<Case>& info);

}  // namespace tessera::testing
