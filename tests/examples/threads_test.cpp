// Training with any number of threads gives the same parameters and optimizer state bit for bit, and the same ledger.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "tests/examples/training.h"

namespace tessera::examples::threads_test {
namespace {

using Threads = Training;

std::map<std::string, std::string> arrays_in(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    std::ifstream in(entry.path(), std::ios::binary);
    files[std::filesystem::relative(entry.path(), folder).string()] = {std::istreambuf_iterator<char>(in), {}};
  }
  return files;
}

std::string ledger_in(const std::string& output) {
  const size_t begin = output.find("\ncollective ");
  return begin == std::string::npos ? "" : output.substr(begin, output.find("\ntotal", begin) - begin);
}

TEST_F(Threads, ChangeNoBitOfATraining) {
  const std::string sizes = " --embed 128 --mlp 512 --layers 2 --seq 32 --batch 16";
  for (const std::string flags :
       {"--strategy dp --model gpt", "--strategy fsdp --model llama", "--strategy tp --model gpt", "--strategy 2d --model llama",
        "--strategy zero1 --model gpt", "--strategy 2d --model gpt --remat --micro-batches 2 --precision bfloat16"}) {
    SCOPED_TRACE(flags);
    std::map<std::string, std::string> expected;
    std::string ledger;
    for (const std::string threads : {"1", "2", "3", "8"}) {
      const std::string folder = folder_.path("saved_" + threads);
      std::filesystem::remove_all(folder);
      const std::string variables = "MKL_DYNAMIC=FALSE OMP_NUM_THREADS=" + threads;  // for any number of cores
      const Outcome outcome = run_program(variables + " " + program_ + " --data " + text_ + small + sizes + " " + flags +
                                          " --save " + folder);
      ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
      const auto arrays = arrays_in(folder);
      ASSERT_FALSE(arrays.empty());
      ASSERT_NE(ledger_in(outcome.output), "") << outcome.output;
      if (threads == "1") expected = arrays, ledger = ledger_in(outcome.output);
      EXPECT_TRUE(arrays == expected) << threads << " threads";
      EXPECT_EQ(ledger_in(outcome.output), ledger) << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace tessera::examples::threads_test
