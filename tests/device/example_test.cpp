// Trains the example transformer on an accelerator named by the environment: the losses equal the host's.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "tests/data/scratch_folder.h"
#include "tests/examples/program.h"

namespace tessera::example_test {
namespace {

// Runs this command and returns the losses that the example writes.
std::vector<double> losses_of_example(const std::string& command, const std::filesystem::path& metrics) {
  const examples::Outcome outcome = examples::run_program(
      fmt::format("{} --mesh data=4,model=2 --steps 3 --warmup 0 --layers 1 --data {} --metrics {}", command,
                  TESSERA_TEXT, metrics.string()));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  std::vector<double> losses;
  std::ifstream lines(metrics);
  for (std::string line; std::getline(lines, line);)
    if (const size_t at = line.find("\"loss\":"); at != std::string::npos)
      losses.push_back(std::strtod(line.c_str() + at + 7, nullptr));
  return losses;
}

TEST(Device, TrainsTheExampleIfTheEnvironmentRequestsIt) {
  const data::ScratchFolder folder;
  const char* other = std::getenv("TESSERA_PROGRAM_ON_DEVICE");  // another device, or more than one process
  const std::string command =
      other ? other : "TESSERA_DEVICE=pretended LD_PRELOAD=" TESSERA_PRETENDED_DEVICE " " TESSERA_TRAIN_TRANSFORMER;
  const std::vector<double> expected = losses_of_example(TESSERA_TRAIN_TRANSFORMER, folder.path("host")),
                            got = losses_of_example(command, folder.path("device"));
  EXPECT_GE(expected.size(), 3u);
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-4) << "step " << i + 1;
}

}  // namespace
}  // namespace tessera::example_test
