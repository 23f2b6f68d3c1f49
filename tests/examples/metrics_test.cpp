// Metrics: one call reaches every file, and a file that cannot be written says so.
#include "examples/train/metrics.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "tests/data/scratch_folder.h"
#include "tests/examples/event_reader.h"
#include "tests/sharding/expect_error.h"

namespace tessera::train::metrics_test {
namespace {

using namespace examples;

using data::ScratchFolder;
namespace fs = std::filesystem;

const LossCurve curve{.caption = "a run", .steps = 2, .unigram_entropy = 3.5, .bigram_entropy = 2.5};

TEST(Metrics, ARowReachesEveryFile) {
  ScratchFolder folder;
  Metrics metrics({folder.path("m.jsonl"), folder.path("runs"), folder.path("loss.svg")}, curve);
  EXPECT_NE(folder.read("loss.svg").find("a run"), std::string::npos) << "drawn from the start";

  metrics.write(StepMetrics{1, 4.5, 1.25, 0.001, 1024});
  metrics.write(ValidationMetrics{1, 4.25});
  EXPECT_EQ(folder.read("m.jsonl"),
            "{\"step\":1,\"loss\":4.5,\"grad_norm\":1.25,\"learning_rate\":0.001,\"tokens_per_second\":1024.0}\n"
            "{\"step\":1,\"validation_loss\":4.25,\"unigram_entropy\":3.5,\"bigram_entropy\":2.5}\n");
  EXPECT_NE(folder.read("loss.svg").find("validation loss 4.250 after 1 steps"), std::string::npos);

  const auto events = read_events(fs::directory_iterator(folder.path("runs"))->path());
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[1].step, 1);
  EXPECT_EQ(events[1].scalars, (std::map<std::string, float>{{"train/loss", 4.5f},
                                                             {"train/grad_norm", 1.25f},
                                                             {"train/learning_rate", 0.001f},
                                                             {"train/tokens_per_second", 1024.0f}}));
  EXPECT_EQ(events[2].scalars, (std::map<std::string, float>{{"validation/loss", 4.25f}}));
}

TEST(Metrics, ARowHasTheSpeedAndTheMemoryThatAreKnown) {
  ScratchFolder folder;
  Metrics metrics({folder.path("m.jsonl"), folder.path("runs")}, curve);
  metrics.write(StepMetrics{1, 4.5, 1.25, 0.001, 1024, 2e9, 0.5, 1 << 20});
  EXPECT_EQ(folder.read("m.jsonl"),
            "{\"step\":1,\"loss\":4.5,\"grad_norm\":1.25,\"learning_rate\":0.001,\"tokens_per_second\":1024.0,"
            "\"flops_per_second\":2e+09,\"mfu\":0.5,\"peak_bytes\":1048576}\n");
  const auto events = read_events(fs::directory_iterator(folder.path("runs"))->path());
  EXPECT_EQ(events[1].scalars.at("train/mfu"), 0.5f);
  EXPECT_EQ(events[1].scalars.at("train/peak_bytes"), 1048576.0f);
}

TEST(Metrics, OfAnEarlierRunThatAreNoRowsAreAnError) {
  for (const char* row : {"[1]", "{\"step\":\"x\"}", "{\"step\":1,\"loss\":null}", "{}"}) {
    ScratchFolder folder;
    std::ofstream(folder.path("m.jsonl")) << row << '\n';
    testing::expect_error(ErrorKind::invalid_file, "[metrics] " + folder.path("m.jsonl"),
                          [&] { Metrics({folder.path("m.jsonl")}, curve, {}, 5); });
  }
}

TEST(Metrics, WithoutPathsNothingIsWritten) {
  ScratchFolder folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  Metrics metrics({}, curve);
  metrics.write(StepMetrics{1, 4.5, 1.25, 0.001, 1024});
  metrics.write(ValidationMetrics{1, 4.25});
  fs::current_path(before);
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(Metrics, APictureIsReplacedWhole) {
  ScratchFolder folder;
  const std::string path = folder.write("loss.svg", "the last run's");
  std::ifstream reader(path);  // began to read before the run
  Metrics metrics({.svg = path}, curve);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(reader), {}), "the last run's");
  EXPECT_TRUE(folder.read("loss.svg").ends_with("</svg>\n"));
  EXPECT_FALSE(fs::exists(path + ".partial"));
}

TEST(Metrics, WhatCannotBeWrittenIsAnError) {
  ScratchFolder folder;
  fs::create_directory(folder.path("a folder"));
  const auto error_of = [](const std::function<void()>& act) {
    return tessera::testing::error_of(ErrorKind::invalid_file, act);
  };
  const std::string nowhere = folder.path("nowhere/file"), there = folder.path("a folder");
  EXPECT_EQ(error_of([&] { Metrics({.json_lines = nowhere}, curve); }),
            "[metrics] " + nowhere + ": the file cannot be written. Check its folder.");
  EXPECT_EQ(error_of([&] { Metrics({.svg = nowhere}, curve); }),
            "[metrics] " + nowhere + ".partial: it cannot be written to (No such file or directory). Check the path.");
  EXPECT_EQ(error_of([&] { Metrics({.svg = there}, curve); }),
            "[metrics] " + there + ": this is not a regular file, and a file cannot replace it. Check the path.");
  Metrics full({.json_lines = "/dev/full"}, curve);
  EXPECT_EQ(error_of([&] {
              full.write(ValidationMetrics{1, 2});
            }),
            "[metrics] /dev/full: the file cannot be written. Is the disk full?");
}

}  // namespace
}  // namespace tessera::train::metrics_test
