// The options of a training step change the memory and collectives of train_transformer, not what it learns.
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "tests/examples/training.h"

namespace tessera::examples::train_step_test {
namespace {

using TrainStep = Training;

// A line of the ledger; its count is 0 if the table has no such line.
struct LedgerLine {
  int64_t count = 0, bytes = 0;
};

LedgerLine ledger_line(const Outcome& outcome, const std::string& kind, const std::string& axes,
                       const std::string& pass) {
  std::istringstream lines(outcome.output);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string first, second, last;
    int64_t devices = 0;
    LedgerLine found;
    if (words >> first >> second >> devices >> found.count >> found.bytes >> last && first == kind && second == axes &&
        last == pass)
      return found;
  }
  return {};
}

const char* const strategies[] = {"--strategy tp", "--strategy fsdp", "--strategy 2d", "--strategy zero1"};
const std::string two_rows = " --batch 16";  // on each of eight devices

TEST_F(TrainStep, LearnsTheSameWithLessMemory) {
  const struct {
    std::string flags;
    double tolerance;
  } cases[] = {{" --remat", 1e-5},
               {" --micro-batches 2", 1e-5},
               {" --no-reshard-after-forward", 1e-5},
               {" --graphed-step", 1e-5},
               {" --precision bfloat16", 5e-3},
               {" --remat --micro-batches 2 --no-reshard-after-forward --precision bfloat16", 5e-3}};
  for (const std::string model : {" --model gpt", " --model llama"})
    for (const std::string strategy : strategies) {
      const Run plain = run(strategy + model + two_rows);
      for (const auto& c : cases) {
        SCOPED_TRACE(strategy + model + c.flags);
        expect_losses(run(strategy + model + two_rows + c.flags), plain, c.tolerance);
      }
    }
}

TEST_F(TrainStep, StateCutOverTheBatchIsScatteredAndGatheredOnce) {
  for (const std::string model : {" --model gpt", " --model llama"}) {
    const Run dp = run("--strategy dp" + model), zero1 = run("--strategy zero1" + model);
    expect_losses(zero1, dp, 1e-5);
    const LedgerLine gradients = ledger_line(dp.outcome, "all_reduce", "data", "backward");
    const LedgerLine scattered = ledger_line(zero1.outcome, "reduce_scatter", "data", "backward");
    const LedgerLine gathered = ledger_line(zero1.outcome, "all_gather", "data", "forward");
    EXPECT_EQ(ledger_line(zero1.outcome, "all_reduce", "data", "backward").count, 0);
    EXPECT_EQ(scattered.count, 1);
    EXPECT_EQ(scattered.bytes, gradients.bytes / 8);
    EXPECT_EQ(gathered.count, 1);
    EXPECT_EQ(gathered.bytes, gradients.bytes);
    EXPECT_TRUE(zero1.outcome.says("\nstate    of the optimizer: sharded over data as well\n")) << zero1.outcome.output;
    EXPECT_FALSE(dp.outcome.says("\nstate    ")) << dp.outcome.output;
  }
}

TEST_F(TrainStep, StateIsCutOverAnyAxesOfAnyMesh) {
  const auto line_of = [](const Outcome& outcome, const std::string& path) {
    const size_t begin = outcome.output.find("\n" + path + " ") + 1;
    return outcome.output.substr(begin, outcome.output.find('\n', begin) - begin);
  };
  const struct {
    std::string placement, axes, parameter, state;  // specs of layers.0.attn.q.kernel, (embed, heads)
  } cases[] = {{"--strategy 2d", "data", "P(None, 'model')", "P('data', 'model')"},
               {"--strategy 2d", "data+model", "P(None, 'model')", "P('data', 'model')"},
               {"--mesh data=4,model=2", "data+model", "P()", "P(('data', 'model'))"},
               {"--mesh data=4,model=2 --rules embed=data", "model", "P('data')", "P(('data', 'model'))"},
               {"--strategy fsdp", "data", "P('data')", "P('data')"}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.placement + " over " + c.axes);
    const Run plain = run(c.placement), cut = run(c.placement + " --shard-state-over " + c.axes);
    expect_losses(cut, plain, 1e-5);
    const std::string q = "layers.0.attn.q.kernel";
    const std::string parameter = line_of(cut.outcome, "model." + q);
    const std::string state = line_of(cut.outcome, "optimizer.state.1.mu." + q);
    EXPECT_NE(parameter.find(" " + c.parameter + " "), std::string::npos) << parameter;
    EXPECT_NE(state.find(" " + c.state + " "), std::string::npos) << state;
  }
}

TEST_F(TrainStep, TheLedgerHasTheCostOfEachFlag) {
  const std::string fsdp = "--steps 1 --warmup 0 --strategy fsdp" + two_rows;
  const auto gathers = [&](const Outcome& o, const char* pass) { return ledger_line(o, "all_gather", "data", pass); };
  const Outcome plain = train(fsdp), kept = train(fsdp + " --no-reshard-after-forward"),
                again = train(fsdp + " --remat");
  const Outcome half = train(fsdp + " --precision bfloat16"), parts = train(fsdp + " --micro-batches 2");
  const LedgerLine first = gathers(plain, "forward"), second = gathers(plain, "backward");
  const LedgerLine scattered = ledger_line(plain, "reduce_scatter", "data", "backward");
  EXPECT_EQ(first.count, 11);  // eight of the block, two of the embeddings, the head
  EXPECT_EQ(second.count, 7);  // the matrices

  EXPECT_EQ(gathers(kept, "forward").bytes, first.bytes);
  EXPECT_EQ(gathers(kept, "backward").count, 0);

  EXPECT_EQ(gathers(again, "forward").count, first.count + 8);
  EXPECT_EQ(gathers(again, "backward").count, second.count);
  EXPECT_EQ(ledger_line(again, "reduce_scatter", "data", "backward").bytes, scattered.bytes);

  EXPECT_EQ(gathers(half, "forward").bytes, first.bytes / 2);
  EXPECT_EQ(gathers(half, "backward").bytes, second.bytes / 2);
  EXPECT_EQ(ledger_line(half, "reduce_scatter", "data", "backward").bytes, scattered.bytes);

  EXPECT_EQ(gathers(parts, "forward").count, first.count + 1 + 3);  // the second micro-batch gathers by block
  EXPECT_EQ(ledger_line(parts, "reduce_scatter", "data", "backward").count, 2 * scattered.count);
}

TEST_F(TrainStep, GradientsOfMicroBatchesAreReducedOnce) {
  const std::string dp = "--steps 1 --warmup 0 --strategy dp" + two_rows;
  const LedgerLine plain = ledger_line(train(dp), "all_reduce", "data", "backward");
  const LedgerLine parts = ledger_line(train(dp + " --micro-batches 2"), "all_reduce", "data", "forward");
  EXPECT_EQ(parts.count, 1 + 2);  // and the loss of each micro-batch
  EXPECT_EQ(parts.bytes, plain.bytes + 2 * 4);
  const Outcome zero1 = train("--steps 1 --warmup 0 --strategy zero1 --micro-batches 2" + two_rows);
  EXPECT_EQ(ledger_line(zero1, "reduce_scatter", "data", "forward").count, 1);
}

}  // namespace
}  // namespace tessera::examples::train_step_test
