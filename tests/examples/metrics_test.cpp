// Metrics: one call writes to every file, and a file that cannot be written is reported.
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

const RunFacts facts{.steps = 2, .unigram_entropy = 3.5, .bigram_entropy = 2.5};

TEST(Metrics, ARowReachesEveryFile) {
  ScratchFolder folder;
  Metrics metrics({folder.path("m.jsonl"), folder.path("runs"), folder.path("page.html")}, facts, {.title = "a run"});
  EXPECT_NE(folder.read("page.html").find("a run"), std::string::npos) << "written from the start";

  metrics.write(StepMetrics{1, 4.5, 1.25, 0.001, 1024});
  metrics.write(ValidationMetrics{1, 4.25});
  EXPECT_EQ(folder.read("m.jsonl"),
            "{\"step\":1,\"loss\":4.5,\"grad_norm\":1.25,\"learning_rate\":0.001,\"tokens_per_second\":1024.0}\n"
            "{\"step\":1,\"validation_loss\":4.25,\"unigram_entropy\":3.5,\"bigram_entropy\":2.5}\n");
  EXPECT_NE(folder.read("page.html").find(R"("points":[[1E0,4.25E0]])"), std::string::npos) << "the validation loss";

  const auto events = read_events(fs::directory_iterator(folder.path("runs"))->path());
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[1].step, 1);
  EXPECT_EQ(events[1].scalars, (std::map<std::string, float>{{"train/loss", 4.5f},
                                                             {"train/grad_norm", 1.25f},
                                                             {"train/learning_rate", 0.001f},
                                                             {"train/tokens_per_second", 1024.0f}}));
  EXPECT_EQ(events[2].scalars, (std::map<std::string, float>{{"validation/loss", 4.25f}}));
}

TEST(Metrics, ReplaceOnlyFilesOfTheirKind) {
  ScratchFolder folder;
  const MetricsFiles ours{.json_lines = folder.path("m.jsonl"), .report = folder.path("page.html")};
  for (int i = 0; i < 2; ++i) Metrics(ours, facts).write(StepMetrics{1});
  folder.write("empty", ""), folder.write("notes", "my notes");
  Metrics({folder.path("empty")}, facts);
  for (const MetricsFiles& files : {MetricsFiles{folder.path("notes")}, MetricsFiles{.report = folder.path("notes")}})
    testing::expect_error(ErrorKind::invalid_file, "notes: it is there and not ", [&] { Metrics(files, facts); });
  EXPECT_EQ(folder.read("notes"), "my notes");
  folder.write("rows", R"({"step":1000,"text":"mine"})"
                       "\n");
  for (const char* file : {"notes", "rows"})  // of a run that resumes
    testing::expect_error(ErrorKind::invalid_file, "not ", [&] { Metrics({folder.path(file)}, facts, {}, 1); });
  folder.write("mixed", folder.read("m.jsonl") + "my notes\n");
  for (const char* file : {"rows", "mixed"})
    testing::expect_error(ErrorKind::invalid_file, "not ", [&] { Metrics({folder.path(file)}, facts); });
  EXPECT_EQ(folder.read("notes"), "my notes");
  EXPECT_NE(folder.read("rows"), "");
}

TEST(Metrics, ARowHasTheSpeedAndTheMemoryThatAreKnown) {
  ScratchFolder folder;
  Metrics metrics({folder.path("m.jsonl"), folder.path("runs")}, facts);
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
                          [&] { Metrics({folder.path("m.jsonl")}, facts, {}, 5); });
  }
}

TEST(Metrics, OfAnEarlierRunAreNotReadFromAHugeFile) {
  ScratchFolder folder;
  fs::resize_file(folder.write("m.jsonl", ""), (uintmax_t{1} << 29) + 1);  // takes no space on the disk
  testing::expect_error(ErrorKind::invalid_file, "[metrics] " + folder.path("m.jsonl"),
                        [&] { Metrics({folder.path("m.jsonl")}, facts, {}, 5); });
}

TEST(Metrics, WithoutPathsNothingIsWritten) {
  ScratchFolder folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  Metrics metrics({}, facts);
  metrics.write(StepMetrics{1, 4.5, 1.25, 0.001, 1024});
  metrics.write(ValidationMetrics{1, 4.25});
  fs::current_path(before);
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(Metrics, APageIsReplacedWhole) {
  ScratchFolder folder;
  const std::string last = nn::Report{.title = "the last run"}.to_html(), path = folder.write("page.html", last);
  std::ifstream reader(path);  // opened before the run writes
  Metrics metrics({.report = path}, facts);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(reader), {}), last);
  EXPECT_NE(folder.read("page.html"), last);
  EXPECT_FALSE(fs::exists(path + ".partial"));
}

TEST(Metrics, WhatCannotBeWrittenIsAnError) {
  ScratchFolder folder;
  fs::create_directory(folder.path("a folder"));
  const auto error_of = [](const std::function<void()>& act) {
    return tessera::testing::error_of(ErrorKind::invalid_file, act);
  };
  const std::string nowhere = folder.path("nowhere/file"), there = folder.path("a folder");
  EXPECT_EQ(error_of([&] { Metrics({.json_lines = nowhere}, facts); }),
            "[metrics] " + nowhere + ": the file cannot be written. Check its folder.");
  EXPECT_EQ(error_of([&] { Metrics({.report = nowhere}, facts); }),
            "[metrics] " + nowhere + ".partial: it cannot be written to (No such file or directory). Check the path.");
  EXPECT_EQ(error_of([&] { Metrics({.report = there}, facts); }),
            "[metrics] " + there + ": this is not a regular file, and a file cannot replace it. Check the path.");
  Metrics full({.json_lines = "/dev/full"}, facts);
  EXPECT_EQ(error_of([&] {
              full.write(ValidationMetrics{1, 2});
            }),
            "[metrics] /dev/full: the file cannot be written: No space left on device. Free some space, or give "
            "another file.");
}

}  // namespace
}  // namespace tessera::train::metrics_test
