// Runs the shortest programs as a user would: linear regression, a sharding, and two optimizers in one training.
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "tests/examples/program.h"

namespace tessera::examples::first_programs_test {
namespace {

std::vector<double> losses_of(const std::string& output) {
  std::vector<double> losses;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("loss ")) losses.push_back(std::stod(line.substr(5)));
  return losses;
}

TEST(FirstPrograms, FitLineFindsTheLine) {
  const Outcome outcome = run_program(TESSERA_FIT_LINE);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  double slope = 0, intercept = 0;
  const size_t at = outcome.output.find("y = ");
  ASSERT_NE(at, std::string::npos) << outcome.output;
  ASSERT_EQ(std::sscanf(outcome.output.c_str() + at, "y = %lf x + %lf", &slope, &intercept), 2) << outcome.output;
  EXPECT_NEAR(slope, 3, 0.1);
  EXPECT_NEAR(intercept, -2, 0.1);
}

TEST(FirstPrograms, QuickstartShowsThePlacementAndLearns) {
  const Outcome outcome = run_program(TESSERA_QUICKSTART);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("up.kernel")) << outcome.output;
  EXPECT_TRUE(outcome.says("P(None, 'model')")) << outcome.output;
  const std::vector<double> losses = losses_of(outcome.output);
  ASSERT_EQ(losses.size(), 20u) << outcome.output;
  EXPECT_LT(losses.back(), 0.95 * losses.front());
}

TEST(FirstPrograms, TwoOptimizersLearnAndShowTheirStates) {
  const Outcome outcome = run_program(TESSERA_TWO_OPTIMIZERS);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("optimizer.state.1.matrices.0.mu.up.kernel")) << outcome.output;
  EXPECT_TRUE(outcome.says("optimizer.state.1.rest.0.nu.down.bias")) << outcome.output;
  const std::vector<double> losses = losses_of(outcome.output);
  ASSERT_EQ(losses.size(), 3u) << outcome.output;
  EXPECT_LT(losses.back(), 0.5 * losses.front());
}

}  // namespace
}  // namespace tessera::examples::first_programs_test
