// Processes that save together: an error on one process is an error on all, at the same call, and none waits forever.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/nn/checkpoint/support.h"

namespace tessera::nn::testing::processes_test {
namespace {

constexpr int kProcesses = 3;
const char* const kAnother = ": another process could not save its part. Its own error gives the reason.";

// The arguments of one process to save.
struct Given {
  Leaves arrays;
  int64_t step = 1;
  SaveExtra extra = {};
};

class ProcessesTest : public ::testing::Test {
 protected:
  fs::path folder() const { return folder_.path("run"); }

  // Process 0 writes at once; the others write in the background.
  CheckpointOptions options(const Processes& mine) const {
    return {.max_pending_bytes = mine.process_index == 0 ? 0 : 1 << 30, .processes = mine};
  }

  // Returns the error of save or of the following wait; "" if there was none.
  static std::string error_of(Checkpointer& checkpoints, const Given& given) {
    try {
      checkpoints.save(given.step, given.arrays, given.extra);
      checkpoints.wait();
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }

  // Checks that process `at` has the error `words`, and the others the error that another process failed.
  static void expect_all_failed(const std::vector<std::string>& errors, int at, const std::string& words,
                                const std::string& what) {
    for (int i = 0; i < kProcesses; ++i)
      EXPECT_NE(errors[i].find(i == at ? words : kAnother), std::string::npos)
          << what << ", process " << at << " failed, process " << i << " says: " << errors[i];
  }

  Saved model_ = filter_shard(Saved::init(Key(3)), strategies()[0].mesh_rules);
  ScratchFolder folder_;
};

TEST_F(ProcessesTest, WhatIsWrongOnOneFailsAllAndTheNextSaveIsWhole) {
  const struct {
    const char* words;
    void (*change)(Given&);
  } cases[] = {
      {"step -1 given", [](Given& given) { given.step = -1; }},
      {"metric \"loss\": nan given", [](Given& given) { given.extra.metrics["loss"] = NAN; }},
      {"extra \"loader\": line 1", [](Given& given) { given.extra.extra["loader"] = "three"; }},
      {"two arrays have this path", [](Given& given) { given.arrays.push_back(given.arrays[0]); }},
  };
  for (const auto& [words, change] : cases)
    for (int at = 0; at < kProcesses; ++at) {
      fs::remove_all(folder());
      std::vector<std::string> first(kProcesses), second(kProcesses);
      const auto thrown = Crowd(kProcesses).run([&](const Processes& mine) {
        Checkpointer checkpoints(folder(), options(mine));
        Given given{.arrays = named("model", model_)};
        if (mine.process_index == at) change(given);
        first[mine.process_index] = error_of(checkpoints, given);
        second[mine.process_index] = error_of(checkpoints, {.arrays = named("model", model_), .step = 2});
      });
      EXPECT_EQ(thrown, std::vector<std::string>(kProcesses)) << words;
      expect_all_failed(first, at, words, words);
      EXPECT_EQ(second, std::vector<std::string>(kProcesses)) << words;
      EXPECT_EQ(names_in(folder()), (std::vector<std::string>{".lock", "2"})) << words;
    }
}

// Lets each process in turn fail at each stage of a save: first when the Checkpointer is constructed, then in save.
TEST_F(ProcessesTest, AStageThatFailsOnOneFailsOnAllAndTheNextSaveIsWhole) {
  constexpr int making = 1, last_before_commit = 5;
  for (int stage = making; stage <= last_before_commit; ++stage)
    for (int at = 0; at < kProcesses; ++at) {
      fs::remove_all(folder());
      std::vector<std::string> second(kProcesses);
      const auto first = Crowd(kProcesses).run([&](Processes mine) {
        int calls = 0;
        mine.all_ok = [&calls, agree = mine.all_ok, refuses = mine.process_index == at, stage](bool ok) {
          return agree(ok && !(++calls == stage && refuses));
        };
        Checkpointer checkpoints(folder(), options(mine));
        const std::string error = error_of(checkpoints, {.arrays = named("model", model_)});
        second[mine.process_index] = error_of(checkpoints, {.arrays = named("model", model_), .step = 2});
        throw std::runtime_error(error);
      });
      const std::string what = fmt::format("stage {}", stage);
      expect_all_failed(first, at, kAnother, what);
      if (stage == making) continue;
      EXPECT_EQ(second, std::vector<std::string>(kProcesses)) << what;
      EXPECT_EQ(names_in(folder()), (std::vector<std::string>{".lock", "2"})) << what;
    }
}

TEST_F(ProcessesTest, AProcessThatSeesOtherFilesFailsAllAndLeavesNothing) {
  const auto errors = Crowd(kProcesses).run([&](const Processes& mine) {
    Checkpointer checkpoints(mine.process_index == 1 ? fs::path(folder_.path("elsewhere")) : folder(), options(mine));
    checkpoints.save(1, named_state("model", model_));
    checkpoints.wait();
  });
  expect_all_failed(errors, 1, "elsewhere/1.tmp/params/model-00001-of-00001.safetensors: it cannot be written to", "");
  EXPECT_EQ(names_in(folder()), std::vector<std::string>{".lock"});
}

TEST_F(ProcessesTest, AFolderThatOneCannotHaveIsRefusedToAll) {
  const auto make = [&](const fs::path& path, const Processes& mine) { Checkpointer(path, options(mine)); };
  expect_all_failed(Crowd(kProcesses).run([&](const Processes& mine) {
    make(mine.process_index == 2 ? "/proc/no/such" : folder(), mine);
  }),
                    2, "[save] /proc/no/such: this folder cannot be made", "");
  Checkpointer another(folder());
  expect_all_failed(Crowd(kProcesses).run([&](const Processes& mine) { make(folder(), mine); }), 0,
                    "another run saves here", "");
}

TEST_F(ProcessesTest, NoneWaitsForOneThatHasLeft) {
  const auto errors = Crowd(kProcesses).run([&](const Processes& mine) {
    Checkpointer checkpoints(folder(), options(mine));
    if (mine.process_index == 1) throw std::runtime_error("something else");
    checkpoints.save(1, named_state("model", model_));
  });
  expect_all_failed(errors, 1, "something else", "");
  EXPECT_EQ(names_in(folder()), std::vector<std::string>{".lock"});
}

TEST_F(ProcessesTest, ProcessesThatCannotBeAreRefused) {
  const auto with = [&](int index, int count) {
    return [=, this] { Checkpointer(folder(), {.processes = {.process_index = index, .num_processes = count}}); };
  };
  const std::string expected = ": expected an index from 0 on below the count, and all_ok where there are several.";
  expect_error(ErrorKind::invalid_argument, "[save] process 0 of 2 without all_ok" + expected, with(0, 2));
  expect_error(ErrorKind::invalid_argument, "[save] process 1 of 1 without all_ok" + expected, with(1, 1));
  expect_error(ErrorKind::invalid_argument, "[save] process -1 of 2 without all_ok" + expected, with(-1, 2));
}

}  // namespace
}  // namespace tessera::nn::testing::processes_test
