// Runs spmd_strategies: the shards of every device, and the same training with each strategy.
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "tests/examples/program.h"

namespace tessera::examples::spmd_strategies_test {
namespace {

TEST(SpmdStrategies, PrintTheBlocksOfEveryDevice) {
  const Outcome outcome = run_program(TESSERA_SPMD_STRATEGIES);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  for (const char* words :
       {"each device holds (16, 512)", "each device holds (128, 64)", "each device holds (32, 256)",
        "each device holds (128, 512)", "float32[16@data,32] @ float32[32,64@model] = float32[16@data,64@model]",
        "float32[16@data,32@model] @ float32[32,64@model] = float32[16@data,64@model]",
        "constrained: float32[16@model,8]", "P(): 400 MB on each device, 3200 MB in all",
        "P('fsdp'): 50 MB on each device, 400 MB in all", "data parallel: 8398848 of 8398848 bytes",
        "tensor parallel: 1058816 of 8398848 bytes", "2D parallel: 4204544 of 8398848 bytes",
        "fully sharded: 1051648 of 8398848 bytes"})
    EXPECT_TRUE(outcome.says(words)) << words << "\n" << outcome.output;
}

TEST(SpmdStrategies, LearnTheSameWhateverTheStrategy) {
  std::istringstream lines(run_program(TESSERA_SPMD_STRATEGIES).output);
  std::vector<double> losses;
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("loss ")) losses.push_back(std::stod(line.substr(5)));
  ASSERT_EQ(losses.size(), 12u);
  for (size_t i = 3; i < losses.size(); ++i) EXPECT_NEAR(losses[i], losses[i % 3], 2e-5 * losses[i % 3]) << i;
  EXPECT_LT(losses[2], losses[0]);
}

}  // namespace
}  // namespace tessera::examples::spmd_strategies_test
