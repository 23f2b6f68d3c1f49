// Runs shard_map and compares the printed numbers with the tutorial's.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "tests/examples/program.h"

namespace tessera::examples::shard_map_test {
namespace {

// The numbers in brackets after the type that is printed behind `name`.
std::vector<double> printed(const std::string& output, const std::string& name) {
  const size_t type = output.find("\n" + name + ": ") + 1;
  const size_t begin = output.find('[', output.find(']', type)), end = output.find(']', begin);
  std::string list = output.substr(begin + 1, end - begin - 1);
  std::replace(list.begin(), list.end(), ',', ' ');
  std::istringstream numbers(list);
  return {std::istream_iterator<double>(numbers), {}};
}

void expect_near(const std::vector<double>& got, const std::vector<double>& expected, const std::string& what,
                 double tolerance = 5e-7) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], tolerance) << what << ", element " << i;
}

TEST(ShardMapProgram, PrintsTheTutorialsNumbers) {
  Outcome outcome = run_program(TESSERA_SHARD_MAP);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  outcome.output.insert(0, "\n");
  expect_near(printed(outcome.output, "2 sin(x) + 1"),
              {1.0,         2.682942,    2.818595,    1.28224,     -0.513605,   -0.9178486,  0.44116896,  2.3139732,
               2.9787164,   1.824237,    -0.08804226, -0.99998045, -0.07314599, 1.8403342,   2.9812148,   2.3005757,
               0.42419332,  -0.92279506, -0.50197446, 1.2997544,   2.8258905,   2.6733112,   0.98229736,  -0.69244075,
               -0.81115675, 0.7352965,   2.525117,    2.912752,    1.5418116,   -0.32726777, -0.97606325, 0.19192469},
              "2 sin(x) + 1");
  EXPECT_TRUE(outcome.says("all: int32[32]\none device: int32[4]{V:x}\n")) << outcome.output;
  expect_near(printed(outcome.output, "sum of each block"), {6, 22, 38, 54, 70, 86, 102, 118}, "sum of each block");
  EXPECT_TRUE(outcome.says("sum of all: int32[]") && outcome.says("496\n")) << outcome.output;
  // First as JAX computes them today, then as the tutorial prints them: its last digits come from another processor.
  for (const char* way : {"layer", "layer of sharded arrays", "layer by shard_map"}) {
    expect_near(printed(outcome.output, way), {0.02138916, 0.8931118, 0.5989196, 0.9774251}, way);
    expect_near(printed(outcome.output, way), {0.02138912, 0.893112, 0.59892005, 0.97742504}, way, 5e-7);
  }
}

}  // namespace
}  // namespace tessera::examples::shard_map_test
