// Runs of several processes that save: the files of one process, resumed by any number of processes, without hangs.
#include <fmt/format.h>

#include <filesystem>
#include <ostream>

#include "nn/checkpoint/checkpoint.h"
#include "tests/examples/training.h"

namespace tessera::examples::resume_test {
namespace {

namespace fs = std::filesystem;

std::string by(int processes) { return fmt::format("bash {} {} ", TESSERA_START, processes); }

class ProcessResume : public Training {
 protected:
  Run run_by(int processes, const std::string& flags) {
    program_ = by(processes) + TESSERA_TRAIN_TRANSFORMER;
    return run(steps_ + flags);
  }
  std::string save_to(const std::string& name) const { return " --save " + folder_.path(name) + " --save-every 2"; }
  std::string steps_ = " --steps 6 --warmup 3 --lr 0.01 ";
};

TEST_F(ProcessResume, LayersOnStagesGoOnOnOtherStages) {
  steps_ += "--layers 4 ";
  const Run expected = run_by(1, "--mesh data=1");
  expect_losses(run_by(2, "--strategy pp --micro-batches 2" + save_to("two")), expected, 2e-5);
  fs::remove_all(folder_.path("two/6"));
  const std::string four = "--mesh pipe=4,data=2 --rules layers=pipe --micro-batches 4 --schedule gpipe";
  expect_losses(run_by(4, four + save_to("two") + " --resume"), expected, 2e-5);
}

TEST_F(ProcessResume, ARunOfTwoContinuesWithOneAndFourOnOtherMeshes) {
  constexpr double tolerance = 2e-5;  // float32 sums in another order
  const std::string mesh = " --mesh data=4,model=2";
  const Run expected = run_by(1, mesh + save_to("one"));
  expect_losses(run_by(2, mesh + save_to("two")), expected, tolerance);
  fs::remove_all(folder_.path("two/6"));  // so that 4 is the newest step
  const struct {
    int processes;
    const char* where;
  } resumed[] = {{1, " --mesh data=1"},
                 {1, " --strategy fsdp"},
                 {2, " --strategy zero1"},
                 {4, " --strategy tp"},
                 {4, " --mesh data=4,model=2"}};
  for (const auto& [processes, where] : resumed) {
    fs::remove_all(folder_.path("run"));
    fs::copy(folder_.path("two"), folder_.path("run"), fs::copy_options::recursive);
    const Run rest = run_by(processes, where + save_to("run") + " --resume");
    EXPECT_TRUE(rest.outcome.says("resumed  after 4 of 6 steps")) << rest.outcome.output;
    expect_losses(rest, expected, tolerance);
    EXPECT_EQ(nn::checkpoint_steps(folder_.path("run")), (std::vector<int64_t>{4, 6}));
  }
}

TEST_F(ProcessResume, OfAnotherRunIsRefusedByAll) {
  run_by(2, " --mesh data=2" + save_to("run"));
  const Outcome outcome = train(" --mesh data=2 --seed 5 --resume" + save_to("run"));
  EXPECT_GT(outcome.exit_code, 0);
  EXPECT_TRUE(outcome.says("Give the same --data, --seq and --seed.")) << outcome.output;
}

TEST_F(ProcessResume, AStepThatFailsIsKeptByAllAndRunsAgainByOne) {
  const std::string kept = folder_.path("kept");
  program_ = by(2) + TESSERA_TRAIN_TRANSFORMER;
  const Outcome failed =
      train("--mesh data=2 --rules embed=data --lr 1e38 --warmup 0 --steps 20 --keep-failed-step " + kept);
  EXPECT_GT(failed.exit_code, 0);
  EXPECT_TRUE(failed.says("step 2: the loss is nan")) << failed.output;
  EXPECT_TRUE(failed.says("The step is kept: --replay " + kept)) << failed.output;
  const Outcome again = run_program(std::string(TESSERA_TRAIN_TRANSFORMER) + " --replay " + kept);
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_TRUE(again.says("error: [embedding] embed: chosen_strategy.h:")) << again.output;
}

// ---- a process that dies during a save

struct Death {
  int victim;
  const char *name, *when;
  friend std::ostream& operator<<(std::ostream& out, const Death& d) { return out << d.when << ' ' << d.victim; }
};

class KilledInSave : public ::testing::TestWithParam<Death> {};

Outcome run_saver(const Death& d, const std::string& folder) {
  fs::remove_all(folder);
  return run_program(fmt::format("TESSERA_TIMEOUT=30 timeout -s KILL 120 {}{} {} {} {}", by(3), TESSERA_SAVER, folder,
                                 d.victim, d.when));
}

TEST_P(KilledInSave, EndsTheOthersAndLeavesTheCheckpointBefore) {
  const data::ScratchFolder scratch;
  const std::string folder = scratch.path("run");
  const std::string words =
      GetParam().victim == 0
          ? "process 0, which hosts the store of all processes, is gone"
          : fmt::format("process {} has ended without an error message: it was killed", GetParam().victim);
  const Outcome outcome = run_saver(GetParam(), folder);
  EXPECT_GT(outcome.exit_code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("[save] " + folder)) << outcome.output;
  EXPECT_TRUE(outcome.says(words)) << outcome.output;

  const std::vector<int64_t> steps = nn::checkpoint_steps(folder);
  ASSERT_FALSE(steps.empty());
  EXPECT_EQ(steps.front(), 1);
  for (int64_t step : steps) nn::describe_checkpoint(folder + "/" + std::to_string(step));
  EXPECT_EQ(run_program(fmt::format("{}{} {} 9 nothing", by(2), TESSERA_SAVER, folder)).exit_code > 0,
            true);  // step 1 exists already, and no process hangs
  EXPECT_FALSE(fs::exists(folder + "/2.tmp")) << "the next run removes what was left";
}

INSTANTIATE_TEST_SUITE_P(All, KilledInSave,
                         ::testing::Values(Death{0, "first_at_the_start", "2.tmp"}, Death{2, "at_the_start", "2.tmp"},
                                           Death{0, "first_while_it_writes",
                                                 "2.tmp/params/model-00001-of-00001.safetensors"},
                                           Death{1, "while_it_writes", "2.tmp/params/model-00001-of-00001.safetensors"},
                                           Death{1, "before_the_commit", "2.tmp/checksums-2"}),
                         [](const auto& d) { return std::string(d.param.name); });

}  // namespace
}  // namespace tessera::examples::resume_test
