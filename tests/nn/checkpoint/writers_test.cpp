// Every sharding and any number of operating-system processes save a checkpoint with the same bytes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/examples/program.h"
#include "tests/nn/checkpoint/support.h"

namespace tessera::nn::testing::writers_test {
namespace {

// Saves every sharding with this many processes to subfolders of `folder`.
void run_writers(const ScratchFolder& scratch, const std::string& folder, int count) {
  const std::string shared = scratch.write(folder + ".shared", std::string(64, '\0'));
  std::vector<examples::Outcome> outcomes(count);
  std::vector<std::thread> threads;
  for (int index = 0; index < count; ++index)
    threads.emplace_back([&, index] {
      outcomes[index] = examples::run_program(
          fmt::format("{} {} {} {} {}", TESSERA_CHECKPOINT_WRITER, scratch.path(folder), index, count, shared));
    });
  for (std::thread& thread : threads) thread.join();
  for (const examples::Outcome& outcome : outcomes) EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
}

TEST(CheckpointWriters, FilesPlacedAsOneDp8Fsdp8Tp8And2x4WrittenBy1And2And4ProcessesAreEqualByteForByte) {
  const ScratchFolder scratch;
  for (const int count : {1, 2, 4}) run_writers(scratch, std::to_string(count), count);
  const auto expected = files_of(scratch.path("1/one"));
  EXPECT_TRUE(expected.contains("12/params/model-00003-of-00003.safetensors"));
  EXPECT_TRUE(expected.contains("12/commit_success.txt"));
  for (const char* count : {"1", "2", "4"})
    for (const char* placement : {"one", "dp8", "fsdp8", "tp8", "2x4"}) {
      const auto files = files_of(fs::path(scratch.path(count)) / placement);
      EXPECT_EQ(files.size(), expected.size()) << placement << ", " << count << " processes";
      for (const auto& [name, bytes] : expected)
        EXPECT_TRUE(files.contains(name) && files.at(name) == bytes)
            << name << ", " << placement << ", " << count << " processes";
    }
}

}  // namespace
}  // namespace tessera::nn::testing::writers_test
