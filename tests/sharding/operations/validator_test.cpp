// The validator: every operation, with every sharding of its operands, has the results of one device.
#include <cstdlib>
#include <filesystem>
#include <map>
#include <regex>
#include <string>

#include "sharding/base/environment.h"
#include "sharding/files/file.h"
#include "sharding/runtime/processes.h"
#include "tests/sharding/operations/padded_cases.h"

namespace tessera::testing {

std::string name_of_case(const ::testing::TestParamInfo<Case>& info) {
  std::string name = fmt::format("{}_", info.index);
  for (const char c : info.param.function.name) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

namespace {

// The test tries all shardings if there are at most `few`, else a fixed sample of them. Several processes, which run
// the program on meshes across them, try 12.
const bool alone = process_count() == 1;
const size_t few = alone ? 128 : 12, sample = alone ? 64 : 12;
constexpr int runs_of_a_placement = 6;  // three roles of the operands times two kinds of replicas

// The number of sharding choices that each operation was checked with.
std::map<std::string, int>& cases_of_operations() {
  static std::map<std::string, int> counts;
  return counts;
}

class Total : public ::testing::Environment {
  void TearDown() override {
    int total = 0;
    for (const auto& [operation, count] : cases_of_operations()) {
      fmt::print("{:28} {:7}\n", operation, count);
      total += count;
    }
    fmt::print(
        "{} operations, {} pairs of an operation and a placement, each as parameters, as activations and mixed, "
        "with shared and with private replicas; of more than {} placements a fixed sample of {}\n",
        cases_of_operations().size(), total, placements_said() ? placements_said() : few,
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
  for (const std::string& operation : one.operations) cases_of_operations()[operation] += runs / runs_of_a_placement;
}

// Meshes must divide evenly among several processes.
TEST_P(Validator, IsTheSameWhereDimsArePadded) {
  const tessera::detail::CheckScope padding_is_zeros;
  const Case& one = GetParam();
  const std::vector<PaddedCase> all = padded_cases(one);
  const size_t most = placements_said() ? (alone ? 3 : 1) * placements_said() : alone ? all.size() : 6;
  int runs = 0, failures = 0;
  for (size_t i = 0; i < std::min(all.size(), most) && failures < 2; ++i) {
    const auto& [function, axes, specs] = all[i * all.size() / std::min(all.size(), most)];
    int64_t devices = 1;
    for (const MeshAxis& axis : axes) devices *= axis.size;
    if (devices % process_count() == 0)
      failures += !expect_law_on(function, on_one_device(function), axes, specs, {}, runs);
  }
  for (const std::string& operation : one.operations) cases_of_operations()[operation] += runs / runs_of_a_placement;
}

INSTANTIATE_TEST_SUITE_P(Operations, Validator, ::testing::ValuesIn(all_cases()), name_of_case);

TEST(Validator, PadsDimsOf5And7And13OnAxesOf2And3And4And8InEveryOperation) {
  if (!alone) GTEST_SKIP() << "which one process shows";
  std::map<std::string, std::set<std::pair<int64_t, int64_t>>> met;
  for (const Case& one : all_cases())
    for (const PaddedCase& padded : padded_cases(one))
      if (padded.axes.size() == 1)
        for (const int64_t size : padded_sizes(padded.function, padded.specs))
          for (const std::string& operation : one.operations) met[operation].insert({size, padded.axes[0].size});
  for (const auto& [operation, pairs] : met) EXPECT_EQ(pairs.size(), 3u * 4u) << operation;
}

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
