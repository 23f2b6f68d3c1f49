// Other libraries read the files of a checkpoint: Python's safetensors, torch's DCP reader and Orbax.
//
// Each test runs if one of the Pythons has its package. TESSERA_TEST_PYTHONS lists them (paths separated by colons);
// default: python3.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/examples/program.h"
#include "tests/nn/checkpoint/support.h"

namespace tessera::nn::testing::readers_test {
namespace {

using examples::run_program;

std::vector<std::string> pythons() {
  const char* given = std::getenv("TESSERA_TEST_PYTHONS");
  std::istringstream list(given ? given : "python3");
  std::vector<std::string> all;
  for (std::string path; std::getline(list, path, ':');) all.push_back(path);
  return all;
}

// A line for each tensor, in the format of read_checkpoint.py.
std::string line_of(const Leaf& leaf) {
  const std::vector<float> values = leaf.value->to_host<float>();
  double sum = 0;
  for (float x : values) sum += x;
  std::string shape;
  for (int64_t size : leaf.value->shape()) shape += (shape.empty() ? "" : ", ") + std::to_string(size);
  return fmt::format("{} [{}] {} {:.6f} {:.6f} {:.6f}\n", leaf.path, shape, name_of(leaf.value->dtype()), sum,
                     values.front(), values.back());
}

class Readers : public ::testing::TestWithParam<const char*> {};

TEST_P(Readers, ReadEveryParameter) {
  const std::string reader = GetParam();
  const ScratchFolder folder;
  Saved model = Saved::init(Key(1));
  {
    Checkpointer checkpoints(folder.path(), {.max_file_bytes = 100'000});  // several files
    checkpoints.save(3, named_state("model", model));
  }
  constexpr int not_found = 127, has_no_reader = 77;
  std::string lacks;
  for (const std::string& python : pythons()) {
    const auto outcome = run_program(python + " " TESSERA_TESTS_DIR "/nn/checkpoint/read_checkpoint.py " + reader +
                                     " " + folder.path("3/params"));
    if (outcome.exit_code == has_no_reader || outcome.exit_code == not_found) {
      lacks += fmt::format("\n  {}: {}", python, outcome.output);
      continue;
    }
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    std::cout << python << " with " << reader << " reads\n" << outcome.output;
    for (const Leaf& leaf : leaves(model, "model"))
      if (is_floating(leaf.value->dtype()) && leaf.value->ndim() > 0) {
        EXPECT_NE(outcome.output.find(line_of(leaf)), std::string::npos) << line_of(leaf);
      }
    return;
  }
  GTEST_SKIP() << "no Python here has " << reader << "; name one in TESSERA_TEST_PYTHONS:" << lacks;
}

INSTANTIATE_TEST_SUITE_P(Checkpoint, Readers, ::testing::Values("safetensors", "torch_dcp", "orbax"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace tessera::nn::testing::readers_test
