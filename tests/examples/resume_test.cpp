// Resuming: an interrupted training continues on another mesh with the losses of an uninterrupted run.
#include <gtest/gtest.h>

#include <filesystem>

#include "nn/checkpoint/checkpoint.h"
#include "tests/examples/training.h"

namespace tessera::examples::resume_test {
namespace {

namespace fs = std::filesystem;

// Float32 sums are computed in another order on each mesh.
constexpr double tolerance = 2e-5;

class ResumeTest : public Training {
 protected:
  std::string folder_name(const std::string& name) const { return folder_.path(name); }
  std::string save_to(const std::string& name) const { return " --save " + folder_.path(name) + " --save-every 2"; }
  std::string steps_ = " --steps 9 --warmup 3 --lr 0.01";
};

TEST_F(ResumeTest, ComputesItsStepsByItsOwnFlags) {
  run("--strategy sp --steps 2" + save_to("run"));
  const Run resumed = run("--strategy cp --steps 4" + save_to("run") + " --resume");
  EXPECT_TRUE(resumed.outcome.says("permute        seq ")) << resumed.outcome.output;
}

TEST_F(ResumeTest, ContinuesAsIfItHadNeverStoppedOnEveryMesh) {
  steps_ += " --layers 2";
  const Run expected = run("--mesh data=1" + steps_ + save_to("whole"));
  const auto save = folder_name("run");
  for (const char* where : {"--strategy dp", "--strategy fsdp", "--strategy tp", "--strategy 2d", "--strategy zero1",
                            "--strategy pp --micro-batches 2"}) {
    fs::remove_all(save);
    fs::copy(folder_name("whole"), save, fs::copy_options::recursive);
    fs::remove_all(save + "/9");  // so that 8 is the newest remaining step
    const Run resumed = run(std::string(where) + steps_ + save_to("run") + " --resume");
    EXPECT_TRUE(resumed.outcome.says("resumed  after 8 of 9 steps")) << resumed.outcome.output;
    expect_losses(resumed, expected, tolerance);
    const size_t last_step = expected.rows.size() - 2;  // before the last validation
    EXPECT_NEAR(resumed.rows[last_step]["learning_rate"], expected.rows[last_step]["learning_rate"], 1e-9) << where;
  }
}

// Kills each run as soon as a checkpoint of `step` or later is complete. Usually another save is in progress then.
TEST_F(ResumeTest, KilledRunsContinueWithACompleteLossCurve) {
  const std::string long_steps = " --steps 60 --warmup 3 --lr 0.003 --seq 64 --batch 32";  // about 10 ms per step
  const Run expected = run("--mesh data=1" + long_steps);
  const std::string metrics = folder_.path("curve.jsonl");
  const auto command = [&](const std::string& mesh) {
    return program_ + " --data " + text_ + small + " --mesh " + mesh + long_steps + " --save " + folder_name("run") +
           " --save-every 1 --resume --metrics " + metrics;
  };
  const auto copy = [](const fs::path& from, const fs::path& to) {
    fs::remove_all(to);
    if (fs::exists(from)) fs::copy(from, to, fs::copy_options::recursive);
  };
  const struct { const char *mesh, *step; } kills[] = {{"data=8", "2"}, {"data=2,model=4", "15"}, {"model=8", "30"}};
  for (const auto& [mesh, step] : kills) {
    const std::string newest = "newest=$(ls " + folder_name("run") + " | grep -x '[0-9]*' | sort -n | tail -n 1)";
    const auto run_and_kill = [&, least = step] {
      return run_program(command(mesh) + " & run=$!; while kill -0 $run && " + newest + " && [ ${newest:-0} -lt " +
                         least + " ]; do sleep 0.002; done; kill -9 $run; wait $run");
    };
    const std::string run_before = folder_name("run_before"), metrics_before = folder_.path("curve_before.jsonl");
    copy(folder_name("run"), run_before);
    copy(metrics, metrics_before);
    Outcome outcome = run_and_kill();
    for (int again = 0; again < 20 && outcome.exit_code == 0; ++again) {  // it ended before it was killed
      copy(run_before, folder_name("run"));
      copy(metrics_before, metrics);
      outcome = run_and_kill();
    }
    EXPECT_EQ(outcome.exit_code, 137) << outcome.output;
    const std::vector<int64_t> steps = nn::checkpoint_steps(folder_name("run"));
    ASSERT_FALSE(steps.empty());
    EXPECT_GE(steps.back(), std::stoll(step));
    for (int64_t one : steps) nn::describe_checkpoint(folder_name("run") + "/" + std::to_string(one));  // is complete
  }
  EXPECT_EQ(run_program(command("data=4")).exit_code, 0);
  expect_losses({{}, rows_of(metrics)}, expected, tolerance);
}

TEST_F(ResumeTest, OtherRunsAndOldFoldersAreRefused) {
  train("--mesh data=1 --steps 2" + save_to("run"));
  expect_error("--mesh data=1 --steps 4" + save_to("run"),
               "it has a checkpoint of step 2. Give --resume to continue from it, or another folder.", 1);
  expect_error("--mesh data=1 --steps 4 --seed 5 --resume" + save_to("run"), "Give the same --data, --seq and --seed.",
               1);
  expect_error("--mesh data=1 --layers 2 --steps 4 --resume" + save_to("run"), "the checkpoint lacks model.layers.1.",
               1);
  expect_error("--resume", "[command line] --resume: nothing is saved. Give --save DIR too.", 2);
  expect_error("--save-every 3", "[command line] --save-every: nothing is saved. Give --save DIR too.", 2);
  EXPECT_EQ(nn::checkpoint_steps(folder_name("run")), std::vector<int64_t>{2});
}

TEST_F(ResumeTest, AFolderThatCannotBeWrittenToEndsTheRunBeforeItStarts) {
  expect_error("--mesh data=1 --save /proc/no/such", "[save] /proc/no/such: this folder cannot be made", 1);
}

TEST_F(ResumeTest, InspectPrintsWhatIsThere) {
  train("--mesh data=1 --steps 2" + save_to("run"));
  const std::string inspect = TESSERA_INSPECT;
  const Outcome outcome = run_program(inspect + " " + folder_name("run"));
  EXPECT_EQ(outcome.exit_code, 0);
  for (const char* words : {"checkpoints of 1 steps, 2 to 2", "step 2", "model.embed.tokens ", "optimizer.count = 2",
                            "loader = {\"global_next_index\":16,\"dataset\":", "vocab, embed"})
    EXPECT_TRUE(outcome.says(words)) << words << "\n" << outcome.output;
  EXPECT_TRUE(run_program(inspect + " " + folder_name("nowhere")).says("no complete checkpoint is here"));
  EXPECT_EQ(run_program(inspect).exit_code, 2);
}

}  // namespace
}  // namespace tessera::examples::resume_test
