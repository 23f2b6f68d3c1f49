// A model across processes, with each strategy: parameters, a training step and its ledger equal one process's.
#include <ATen/Parallel.h>
#include <unistd.h>

#include <cstdlib>

#include "examples/transformer.h"
#include "nn/placement/filter_shard.h"
#include "nn/placement/table.h"
#include "nn/report/measure_hardware.h"
#include "nn/transformations/value_and_grad.h"
#include "optim/optimizer.h"
#include "sharding/autodiff/weights/prefetch_schedule.h"
#include "sharding/base/environment.h"
#include "sharding/runtime/consensus.h"
#include "tests/examples/rows.h"
#include "tests/processes/ways.h"
#include "tests/sharding/expect_error.h"

namespace tessera::model_test {
namespace {

using namespace tessera::testing;
using data::TokenBatch;
using examples::Gpt;

struct Strategy {
  const char* name;
  std::vector<MeshAxis> mesh;
  Rules rules;
  bool zero1 = false;  // gradients stay partial sums; the optimizer's state is sharded over "data"
};

const std::vector<Strategy> strategies{
    {"dp8", {{"data", 8}}, {{"batch", "data"}}},
    {"zero1", {{"data", 8}}, {{"batch", "data"}}, true},
    {"fsdp8", {{"data", 8}}, {{"batch", "data"}, {"embed", "data"}}},
    {"tp4", {{"model", 4}}, {{"heads", "model"}, {"mlp", "model"}, {"vocab", "model"}}},
    {"dp2_tp4",
     {{"data", 2}, {"model", 4}},
     {{"batch", "data"}, {"heads", "model"}, {"mlp", "model"}, {"vocab", "model"}}},
    {"fsdp4_tp2",
     {{"data", 4}, {"model", 2}},
     {{"batch", "data"}, {"embed", "data"}, {"heads", "model"}, {"mlp", "model"}, {"vocab", "model"}}},
    {"sequence",
     {{"data", 2}, {"model", 4}},
     {{"batch", "data"}, {"stream_seq", "model"}, {"heads", "model"}, {"mlp", "model"}, {"vocab", "model"}}},
};

bool has_a_place(const Strategy& s) {
  int64_t devices = 1;
  for (const MeshAxis& axis : s.mesh) devices *= axis.size;
  return devices % process_count() == 0;
}

MeshRules mesh_rules_of(const Strategy& s, bool abstract) {
  return MeshRules(make_mesh(s.mesh, {.abstract = abstract}), examples::with_all_names(s.rules));
}

TokenBatch tokens() { return examples::counted_rows(8, 32); }

TokenBatch placed_tokens(const MeshRules& mesh_rules) {
  TokenBatch all = tokens();
  for (const nn::Leaf& leaf : nn::leaves(all))
    *leaf.value =
        place_batch(*leaf.value, mesh_rules,
                    mesh_rules.activations().resolve(*leaf.axes, leaf.value->shape(), "test", leaf.path).spec);
  return all;
}

struct Step {
  Array loss;
  Gpt gradients, after;
};

Step step_of(Gpt model, const TokenBatch& batch, bool zero1, int prefetch = 1) {
  auto optimizer =
      optim::Optimizer(model, optim::chain(optim::clip_by_global_norm(1.0), optim::adamw({.learning_rate = 1e-3})),
                       {.shard_state_over = zero1 ? std::vector<std::string>{"data"} : std::vector<std::string>{}});
  const auto loss_fn = [](const Gpt& m, const TokenBatch& b) { return examples::next_token_loss(m, b); };
  const std::vector<std::string> cut = zero1 ? std::vector<std::string>{"data"} : std::vector<std::string>{};
  auto [loss, grads] =
      nn::value_and_grad(loss_fn, {.prefetch_groups = prefetch, .shard_gradients_over = cut})(model, batch);
  optimizer.update(model, grads);
  return {loss, grads, model};
}

void expect_near(Gpt given, Gpt expected, double tolerance) {
  const nn::Leaves ours = nn::leaves(given), theirs = nn::leaves(expected);
  for (size_t i = 0; i < ours.size(); ++i)
    EXPECT_LE(difference(whole(*ours[i].value), whole(*theirs[i].value)), tolerance) << ours[i].path;
}

TEST(ManyProcesses, AModelWithAnyMeshRulesIsTheModelOfOneProcess) {
  Gpt alone = Gpt::init(Key(0), {});
  const Step expected = step_of(alone, tokens(), false);
  for (const Strategy& s : strategies) {
    if (!has_a_place(s)) continue;
    SCOPED_TRACE(s.name);
    Gpt model = nn::filter_shard(Gpt::init(Key(0), {}), mesh_rules_of(s, false));
    expect_near(model, alone, 0);
    const Step step = step_of(model, placed_tokens(mesh_rules_of(s, false)), s.zero1);
    EXPECT_NEAR(step.loss.item<double>(), expected.loss.item<double>(), 1e-5);
    expect_near(step.gradients, expected.gradients, 1e-6);
    const Step second = step_of(model, placed_tokens(mesh_rules_of(s, false)), s.zero1);  // with prefetch
    expect_near(second.gradients, expected.gradients, 1e-6);
    expect_near(step.after, expected.after, 1e-4);  // Adam's first step is the sign of the gradient, also of noise
  }
}

// ZeRO-1's new parameters may still be gathered when update returns. Their first use waits for them.
TEST(ManyProcesses, NewParametersAreThereWhenTheyAreUsed) {
  const MeshRules mesh_rules{make_mesh({{"data", process_count()}}), examples::with_all_names({{"batch", "data"}})};
  const auto updated = [&](int updates, const std::vector<std::string>& state) {
    Gpt model = nn::filter_shard(Gpt::init(Key(0), {}), mesh_rules);
    auto optimizer = optim::Optimizer(model, optim::adamw({.learning_rate = 1e-3}), {.shard_state_over = state});
    const auto loss_fn = [](const Gpt& m, const TokenBatch& b) { return examples::next_token_loss(m, b); };
    auto [loss, grads] = nn::value_and_grad(loss_fn, {.shard_gradients_over = state})(model, placed_tokens(mesh_rules));
    for (int i = 0; i < updates; ++i) optimizer.update(model, grads);
    return model;
  };
  for (const int updates : {1, 2}) {
    const Gpt expected = updated(updates, {}), given = updated(updates, {"data"});
    const Gpt copy = given, moved = nn::filter_shard(given, mesh_rules);
    EXPECT_GT(nn::placement_table(given).bytes(), 0);
    expect_near(moved, expected, 1e-6);
    expect_near(copy, expected, 1e-6);
    expect_near(given, expected, 1e-6);
  }
  updated(1, {"data"});  // destroyed without a wait
}

TEST(ManyProcesses, AStepsLedgerIsThatOfOneProcess) {
  for (const Strategy& s : strategies) {
    if (!has_a_place(s)) continue;
    SCOPED_TRACE(s.name);
    const auto ledger_on = [&](const MeshRules& mesh_rules) {
      const Gpt model = nn::filter_shard(Gpt::init(Key(0), {}), mesh_rules);
      tessera::detail::clear_gather_orders();
      CommLedger ledger;
      for (int step = 0; step < 2; ++step) step_of(model, placed_tokens(mesh_rules), s.zero1, /*prefetch=*/0);
      return ledger_text(ledger);
    };
    const std::string across = ledger_on(mesh_rules_of(s, false));
    EXPECT_FALSE(across.empty());
    EXPECT_EQ(across, ledger_on(mesh_rules_of(s, true)));
  }
}

// Creating a mesh or mesh rules communicates nothing. They are compared when an array is placed by them.
TEST(ManyProcesses, AllPlaceByTheSameMeshAndRules) {
  const int p = process_count(), me = process_index();
  std::string devices = "0";
  for (int i = 1; i < p; ++i) devices += fmt::format(", {}", i);
  const char* checked = detail::checks ? " with TESSERA_CHECK=1" : "";
  const auto place = [](const Mesh& mesh, const Rules& rules) {
    (void)nn::filter_shard(Gpt::init(Key(0), {}), MeshRules(mesh, examples::with_all_names(rules)));
  };
  expect_error(ErrorKind::inconsistent,
               fmt::format("[filter_shard] process 0 has the mesh (x0={0}) over the devices {1}{2}, process 1 has the "
                           "mesh (x1={0}) over the devices {1}{2}. ",
                           p, devices, checked),
               [&] {
                 place(make_mesh({{fmt::format("x{}", me), p}}, {.device = "cpu"}), {});
               });
  const Mesh mesh = make_mesh({{"data", p}}, {.device = "cpu"});
  expect_error(ErrorKind::inconsistent,
               fmt::format("[filter_shard] process 0 has the mesh (data={0}) over the devices {1} with "
                           "TESSERA_CHECK=1, process 1 has the mesh (data={0}) over the devices {1}. ",
                           p, devices),
               [&] {
                 const detail::CheckScope on_one(me == 0);
                 place(mesh, {});
               });
  expect_error(
      ErrorKind::inconsistent,
      fmt::format("[filter_shard] process 0 has the mesh (y={0}) over the devices {1} with private replicas{2}, "
                  "process 1 has the mesh (y={0}) over the devices {1}{2}. ",
                  p, devices, checked),
      [&] {
        place(make_mesh({{"y", p}}, {.private_replicas = me == 0, .device = "cpu"}), {});
      });
  expect_error(ErrorKind::inconsistent,
               "[filter_shard] process 0 has the rule \"dim0\" -> \"data\", process 1 has the rule \"dim1\" -> "
               "\"data\". All processes must run the same program with the same arguments.",
               [&] {
                 place(mesh, {{fmt::format("dim{}", me), "data"}});
               });
  expect_error(ErrorKind::inconsistent, "[filter_shard] process 0 has embed.tokens: ", [&] {
    const NamedSharding here(mesh, me == 0 ? P{} : P{"data"});
    (void)nn::filter_shard(Gpt::init(Key(0), {}), here);
  });
}

TEST(ManyProcesses, AllMeasureTheSameHardware) {
  const Mesh mesh = make_mesh({{"data", process_count()}, {"model", 2}});
  const nn::Hardware hardware = nn::measure_hardware(mesh, {.side = 32, .bytes = 65536, .num_rounds = 2});
  EXPECT_NO_THROW(detail::check_agreement("measure_hardware", process_count(), nn::to_json(hardware)));
}

// Runs as a test of its own, without the variable that limits the other tests to one thread.
TEST(ManyProcesses, ShareTheCoresOfTheirMachine) {
  if (std::getenv("OMP_NUM_THREADS")) GTEST_SKIP();
  const int before = at::get_num_threads(), cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  make_mesh({{"data", 2}}, {.abstract = true});
  EXPECT_EQ(at::get_num_threads(), before) << "an abstract mesh computes nothing";
  make_mesh({{"data", process_count()}});
  EXPECT_EQ(at::get_num_threads(), before == cores ? std::max(1, cores / process_count()) : before);
}

TEST(ManyProcesses, AllPlaceTheSameModel) {
  const MeshRules mesh_rules(make_mesh({{"data", process_count()}}), examples::with_all_names({{"batch", "data"}}));
  const int64_t mlp = process_index() == 1 ? 128 : 256;
  expect_error(
      ErrorKind::inconsistent,
      "[filter_shard] process 0 has layers.0.mlp.up.kernel: float32[64,256] as P(None, None), process 1 has "
      "layers.0.mlp.up.kernel: float32[64,128] as P(None, None). All processes must run the same program with the same "
      "arguments.",
      [&] { (void)nn::filter_shard(Gpt::init(Key(0), {.mlp = mlp}), mesh_rules); });
  const int64_t layers = process_index() == 1 ? 1 : 2;
  expect_error(ErrorKind::inconsistent, "[filter_shard] process 0 has layers.1.",
               [&] { (void)nn::filter_shard(Gpt::init(Key(0), {.layers = layers}), mesh_rules); });
}

}  // namespace
}  // namespace tessera::model_test
