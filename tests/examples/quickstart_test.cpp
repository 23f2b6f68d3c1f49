// The quickstart as a program: it shows where everything lies, and it learns.
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "tests/examples/program.h"

namespace tessera::examples {
namespace {

TEST(Quickstart, ShowsThePlacementAndLearns) {
  const Outcome outcome = run_program(TESSERA_QUICKSTART);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("model.up.kernel")) << outcome.output;
  EXPECT_TRUE(outcome.says("P(None, 'model')")) << outcome.output;

  std::vector<double> losses;
  std::istringstream lines(outcome.output);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("loss ")) losses.push_back(std::stod(line.substr(5)));
  ASSERT_EQ(losses.size(), 20u) << outcome.output;
  EXPECT_LT(losses.back(), 0.95 * losses.front());
}

}  // namespace
}  // namespace tessera::examples
