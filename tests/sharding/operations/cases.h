// The validator's cases: functions of every registered operation, compared with LibTorch under every sharding.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "tests/sharding/expressions.h"
#include "tests/sharding/law.h"

namespace tessera::testing {

// A function and the names of the registered operations that it covers. An operation with several results has one case
// for each result.
struct Case {
  std::vector<std::string> operations;
  Function function;
};

inline void PrintTo(const Case& one, std::ostream* out) { *out << one.function.name; }  // for GoogleTest

// The cases by subject. Each function is in its own file: cases_elementwise.cpp, ...
std::vector<Case> elementwise_cases();
std::vector<Case> linear_algebra_cases();
std::vector<Case> reduction_cases();
std::vector<Case> ordering_cases();
std::vector<Case> indexing_cases();
std::vector<Case> neural_cases();
std::vector<Case> shape_cases();
std::vector<Case> custom_cases();

std::vector<Case> all_cases();
std::string name_of_case(const ::testing::TestParamInfo<Case>& info);

}  // namespace tessera::testing
