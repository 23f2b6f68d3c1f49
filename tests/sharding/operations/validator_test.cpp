// The validator: every operation, on every placement of its operands, is what it is on one device.
#include <cstdlib>
#include <filesystem>
#include <map>
#include <regex>
#include <string>

#include "sharding/distributed/processes.h"
#include "sharding/files/file.h"
#include "tests/sharding/operations/cases.h"

namespace tessera::testing {

std::vector<Case> all_cases() {
  std::vector<Case> all;
  for (const auto subject : {elementwise_cases, linear_algebra_cases, reduction_cases, ordering_cases, indexing_cases,
                             neural_cases, shape_cases})
    for (Case& one : subject()) all.push_back(std::move(one));
  return all;
}

std::string name_of_case(const ::testing::TestParamInfo<Case>& info) {
  std::string name = fmt::format("{}_", info.index);
  for (const char c : info.param.function.name) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

namespace {

// All placements are tried where there are few, else a fixed sample of them: of several processes, which run the same
// program on meshes that lie across them, 12.
const bool alone = process_count() == 1;
const size_t few = alone ? 128 : 12, sample = alone ? 64 : 12;
constexpr int runs_of_a_placement = 6;  // three roles of the operands, two kinds of replicas

// How many choices of placements each operation was held to.
std::map<std::string, int>& counts() {
  static std::map<std::string, int> counts;
  return counts;
}

class Total : public ::testing::Environment {
  void TearDown() override {
    int total = 0;
    for (const auto& [operation, count] : counts()) {
      fmt::print("{:28} {:7}\n", operation, count);
      total += count;
    }
    fmt::print(
        "{} operations, {} pairs of an operation and a placement, each as parameters, as activations and mixed, "
        "with shared and with private replicas; of more than {} placements a fixed sample of {}\n",
        counts().size(), total, placements_said() ? placements_said() : few,
        placements_said() ? placements_said() : sample);
  }
};

const auto* const total = ::testing::AddGlobalTestEnvironment(new Total);

class Validator : public ::testing::TestWithParam<Case> {};

TEST_P(Validator, IsTheSameOnEveryPlacement) {
  const Case& one = GetParam();
  int runs = 0;
  for (const std::vector<MeshAxis>& axes :
       std::vector<std::vector<MeshAxis>>{{{"x", 4}}, {{"x", 2}, {"y", 2}}, {{"x", 2}, {"y", 4}}})
    runs += expect_law(one.function, axes, sample, false, {}, few);
  for (const std::string& operation : one.operations) counts()[operation] += runs / runs_of_a_placement;
}

// Axes of 3 divide none of the operands' dims, of 8 some; then some devices hold nothing but padding. Of several
// processes all have as many devices.
TEST_P(Validator, IsTheSameWhereDimsArePadded) {
  Case one = GetParam();
  one.function.keeps_division = false;  // which is said of axes that divide
  int runs = 0;
  for (const std::vector<MeshAxis>& axes :
       std::vector<std::vector<MeshAxis>>{{{"x", 3}}, {{"x", 8}}, {{"x", 2}, {"y", 3}}}) {
    int64_t devices = 1;
    for (const MeshAxis& axis : axes) devices *= axis.size;
    if (devices % process_count() == 0)
      runs += expect_law(one.function, axes, alone ? 6 : 3, false, {}, alone ? 8 : 3, uneven::pad);
  }
  for (const std::string& operation : one.operations) counts()[operation] += runs / runs_of_a_placement;
}

INSTANTIATE_TEST_SUITE_P(Operations, Validator, ::testing::ValuesIn(all_cases()), name_of_case);

TEST(Validator, HasACaseForEveryOperation) {
  std::set<std::string> covered, missing;
  for (const Case& one : all_cases()) covered.insert(one.operations.begin(), one.operations.end());
  const std::regex definition("const Operation \\w+\\{\"(\\w+)\"");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(TESSERA_SOURCE_DIR "/sharding")) {
    if (entry.path().extension() != ".cpp") continue;
    const std::string source = read_text(entry.path(), "validator");
    for (std::sregex_iterator found(source.begin(), source.end(), definition), end; found != end; ++found)
      if (!covered.contains((*found)[1])) missing.insert((*found)[1]);
  }
  EXPECT_TRUE(missing.empty()) << fmt::format("operations without a case: {}", fmt::join(missing, ", "));
}

}  // namespace
}  // namespace tessera::testing
