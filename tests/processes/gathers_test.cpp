// Weights gathered block by block across processes: the same bits with prefetch, and no more gathers than requested.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "sharding/accounting/communication_guard.h"
#include "sharding/array/autograd.h"
#include "sharding/autodiff/weights/prefetch_schedule.h"
#include "sharding/redistribution/communicate.h"
#include "sharding/runtime/processes.h"
#include "tests/processes/ways.h"
#include "tests/sharding/law.h"

namespace tessera::gathers_test {
namespace {

using namespace tessera::testing;

constexpr int64_t layers = 4, width = 48, rows = 16;

// Two matrices per layer; one of them is sharded along its columns.
std::vector<Array> weights_of(Mesh mesh) {
  std::vector<Array> weights;
  for (int64_t i = 0; i < 2 * layers; ++i) {
    const PartitionSpec spec = i % 2 ? P{none, "data"} : P{"data"};
    weights.push_back(device_put(normal(Key(i), {width, width}) * 0.2, NamedSharding(mesh, spec)));
    weights.back().impl()->detail().path = detail::as_text(fmt::format("layers.{}.{}", i / 2, i % 2 ? "down" : "up"));
  }
  return weights;
}

struct Pass {
  std::vector<Array> gradients;
  std::vector<int64_t> gathers;  // begun after each layer of the forward pass
  int64_t all_gathers = 0, reduce_scatters = 0, bytes = 0;
};

Pass pass_of(const std::vector<Array>& weights, Mesh mesh, const GradientOptions& options, bool fails = false) {
  Pass pass;
  CommLedger ledger;
  Tape tape(weights, options);
  const auto& w = tape.shadows();
  Array y = device_put(normal(Key(99), {rows, width}), NamedSharding(mesh, P{"data"}));
  for (int64_t i = 0; i < layers; ++i) {
    y = tanh(matmul(matmul(y, w[2 * i]), w[2 * i + 1]));
    pass.gathers.push_back(ledger.count("all_gather"));
    if (fails && i == 1) throw std::runtime_error("stop");
  }
  pass.gradients = tape.gradients(sum(y * y));
  pass.all_gathers = ledger.count("all_gather");
  pass.reduce_scatters = ledger.count("reduce_scatter");
  pass.bytes = ledger.bytes();
  return pass;
}

void expect_same(const Pass& given, const Pass& expected, double tolerance = 0) {
  EXPECT_EQ(given.bytes, expected.bytes);
  ASSERT_EQ(given.gradients.size(), expected.gradients.size());
  for (size_t i = 0; i < given.gradients.size(); ++i)
    EXPECT_LE(difference(whole(given.gradients[i]), whole(expected.gradients[i])), tolerance) << "parameter " << i;
}

// A small sum is computed in double, the sum of a group in its own type. With two terms both give the same result.
TEST(GathersAcrossProcesses, GiveTheSameInGroupsAndAhead) {
  for (const int64_t each : {1, 2}) {
    const Mesh mesh = make_mesh({{"data", each * process_count()}});
    const std::vector<Array> weights = weights_of(mesh);
    detail::clear_gather_orders();
    const Pass alone = pass_of(weights, mesh, {.gather_groups = GatherGroups::by_parameter, .prefetch_groups = 0});
    EXPECT_EQ(alone.all_gathers, 4 * layers - 1) << "the first weight is not read in the backward pass";
    EXPECT_EQ(alone.reduce_scatters, 2 * layers);
    for (const GatherGroups group : {GatherGroups::by_block, GatherGroups::by_parameter})
      for (const int prefetch : {0, 1, 2, 100}) {
        SCOPED_TRACE(fmt::format("{} devices a process, {}, {} ahead", each,
                                 group == GatherGroups::by_block ? "by block" : "by parameter", prefetch));
        const GradientOptions options{.gather_groups = group, .prefetch_groups = prefetch};
        const bool rounds = group == GatherGroups::by_block && mesh.size("data") > 2;
        for (int step = 0; step < 3; ++step) expect_same(pass_of(weights, mesh, options), alone, rounds ? 1e-6 : 0);
      }
  }
}

// If two weights are sharded over the same axes in different orders, the same block is on different devices.
TEST(GathersAcrossProcesses, OfOneBlockMayBeCutInOtherOrders) {
  const int n = process_count(), a = n % 2 ? 1 : 2;
  const Mesh mesh = make_mesh({{"a", a}, {"b", n / a}});
  std::vector<Array> weights;
  for (const PartitionSpec& spec : {P{{"a", "b"}}, P{{"b", "a"}}}) {
    weights.push_back(device_put(normal(Key(weights.size()), {width, width}) * 0.2, NamedSharding(mesh, spec)));
    weights.back().impl()->detail().path = detail::as_text(fmt::format("layers.0.{}", weights.size()));
  }
  const auto gradients_of = [&](const GradientOptions& options) {
    Tape tape(weights, options);
    const Array y = tanh(matmul(matmul(device_put(normal(Key(99), {rows, width}), NamedSharding(mesh, P{{"a", "b"}})),
                                       tape.shadows()[0]),
                                tape.shadows()[1]));
    return tape.gradients(sum(y * y));
  };
  detail::clear_gather_orders();
  const std::vector<Array> alone = gradients_of({.gather_groups = GatherGroups::by_parameter, .prefetch_groups = 0});
  for (int step = 0; step < 3; ++step) {
    const std::vector<Array> together = gradients_of({});
    for (size_t i = 0; i < alone.size(); ++i) EXPECT_LE(difference(whole(together[i]), whole(alone[i])), 1e-5) << i;
  }
}

TEST(GathersAcrossProcesses, BeginAsManyBlocksAheadAsAskedFor) {
  const Mesh mesh = make_mesh({{"data", process_count()}});
  const std::vector<Array> weights = weights_of(mesh);
  const bool crosses = process_count() > 1;
  for (const int prefetch : {0, 1, 2}) {
    detail::clear_gather_orders();
    const GradientOptions options{.prefetch_groups = prefetch};
    pass_of(weights, mesh, options);
    const Pass second = pass_of(weights, mesh, options);
    EXPECT_EQ(second.all_gathers, crosses ? 2 * layers : 0);
    EXPECT_EQ(second.reduce_scatters, crosses ? layers : 0);
    for (int64_t i = 0; i < layers; ++i) EXPECT_EQ(second.gathers[i], crosses ? i + 1 + prefetch : 0) << "layer " << i;
  }
}

// A ledger records when each gather began and when it was needed. The pause separates the layers by some milliseconds.
TEST(GathersAcrossProcesses, AreBegunAheadByTheLedgersClockToo) {
  if (process_count() == 1) GTEST_SKIP() << "nothing is gathered";
  constexpr double pause = 2e-3;
  const Mesh mesh = make_mesh({{"data", process_count()}});
  const std::vector<Array> weights = weights_of(mesh);
  for (const int prefetch : {0, 1}) {
    detail::clear_gather_orders();
    pass_of(weights, mesh, {.prefetch_groups = prefetch});
    CommLedger ledger;
    const Tape tape(weights, {.prefetch_groups = prefetch});
    Array y = device_put(normal(Key(99), {rows, width}), NamedSharding(mesh, P{"data"}));
    for (int64_t i = 0; i < layers; ++i) {
      y = tanh(matmul(matmul(y, tape.shadows()[2 * i]), tape.shadows()[2 * i + 1]));
      std::this_thread::sleep_for(std::chrono::duration<double>(pause));
    }
    const std::vector<CommRecord>& gathers = ledger.records();
    ASSERT_GE(gathers.size(), layers);
    for (int64_t i = 1; i < layers; ++i) {
      const CommRecord &before = gathers[i - 1], &r = gathers[i];
      EXPECT_LE(r.begun.seconds, r.awaited.seconds);
      EXPECT_LE(r.awaited.seconds, r.arrived.seconds);
      EXPECT_GE(prefetch ? r.awaited.seconds - r.begun.seconds : r.begun.seconds - before.arrived.seconds, pause);
    }
    EXPECT_NE(ledger.chrome_trace().find("\"computation\""), std::string::npos);
  }
}

// ---- HSDP: weights sharded over "data" and replicated over "replica"

constexpr int64_t wide = 96;  // half of a layer's matrices is more than a small sum

struct HybridPass {
  std::vector<Array> gradients;
  std::vector<int64_t> sums;  // over replicas, begun before the backward pass of each layer, last layer first
  int64_t sums_in_all = 0;
  std::string ledger;
};

// `again`: the loss also uses a sharded weight without gathering it.
HybridPass hybrid_pass(const std::vector<Array>& weights, Mesh mesh, bool again = false) {
  HybridPass pass;
  const int64_t before = detail::PendingSum::count();
  CommLedger ledger;
  Tape tape(weights);
  const auto& w = tape.shadows();
  Array y = device_put(normal(Key(99), {rows, wide}), NamedSharding(mesh, P{{"replica", "data"}}));
  for (int64_t i = 0; i < layers; ++i) {
    y = tanh(matmul(matmul(y, w[2 * i]), w[2 * i + 1]));
    detail::before_backward(y.impl()->local, [&] { pass.sums.push_back(detail::PendingSum::count() - before); });
  }
  Array loss = sum(y * y);
  if (again) {
    const Array x = device_put(normal(Key(98), {rows, wide}), NamedSharding(mesh, P{"replica", "data"}));
    loss = loss + sum(matmul(x, w[0]));
  }
  pass.gradients = tape.gradients(loss);
  pass.sums_in_all = detail::PendingSum::count() - before;
  pass.ledger = ledger_text(ledger);
  return pass;
}

HybridPass hybrid_pass_at_the_end(const std::vector<Array>& weights, Mesh mesh, bool again = false) {
  const CommBudget budget(int64_t{1} << 40, {.throw_on_exceed = true});
  return hybrid_pass(weights, mesh, again);
}

void expect_equal_gradients(const HybridPass& given, const HybridPass& expected) {
  ASSERT_EQ(given.gradients.size(), expected.gradients.size());
  for (size_t i = 0; i < given.gradients.size(); ++i)
    EXPECT_TRUE(at::equal(whole(given.gradients[i]), whole(expected.gradients[i]))) << "parameter " << i;
}

class HybridAcrossProcesses : public ::testing::Test {
 protected:
  void SetUp() override {
    if (process_count() % 2 != 0) GTEST_SKIP() << "needs two halves";
    detail::clear_gather_orders();
    // With two processes, each holds a full copy. With more, a copy is sharded over several processes.
    const int64_t each = process_count() == 2 ? 2 : 1;
    is_cut_across_ = each == 1;
    mesh_ = mesh_in_boxes({{"replica", 2}, {"data", each * process_count() / 2}}, {1, each}, false);
    for (int64_t i = 0; i < 2 * layers; ++i) {
      weights_.push_back(device_put(normal(Key(i), {wide, wide}) * 0.2, NamedSharding(*mesh_, P{"data"})));
      weights_.back().impl()->detail().path = detail::as_text(fmt::format("layers.{}.{}", i / 2, i % 2));
    }
  }
  std::optional<Mesh> mesh_;
  std::vector<Array> weights_;
  bool is_cut_across_ = false;
};

TEST_F(HybridAcrossProcesses, SumsOverReplicasBeginWithEachBlock) {
  hybrid_pass(weights_, *mesh_);
  const HybridPass early = hybrid_pass(weights_, *mesh_), end = hybrid_pass_at_the_end(weights_, *mesh_);
  // A reduce_scatter between processes is finished only when the next layer's has begun.
  const std::vector<int64_t> expected =
      is_cut_across_ ? std::vector<int64_t>{0, 0, 1, 2} : std::vector<int64_t>{0, 1, 2, 3};
  EXPECT_EQ(early.sums, expected);
  EXPECT_EQ(early.sums_in_all, layers);
  EXPECT_EQ(end.sums_in_all, 0);
  expect_equal_gradients(early, end);
}

TEST_F(HybridAcrossProcesses, AWeightThatIsAlsoUsedShardedIsReducedAtTheEnd) {
  hybrid_pass(weights_, *mesh_, /*again=*/true);
  const HybridPass early = hybrid_pass(weights_, *mesh_, true), end = hybrid_pass_at_the_end(weights_, *mesh_, true);
  EXPECT_EQ(early.sums_in_all, layers);
  expect_equal_gradients(early, end);
}

TEST(GathersAcrossProcesses, OfAStepThatFailsAreForgotten) {
  const Mesh mesh = make_mesh({{"data", process_count()}});
  const std::vector<Array> weights = weights_of(mesh);
  const GradientOptions options{.prefetch_groups = 2};
  const Pass expected = pass_of(weights, mesh, options);
  EXPECT_THROW(pass_of(weights, mesh, options, /*fails=*/true), std::runtime_error);
  expect_same(pass_of(weights, mesh, options), expected);
}

}  // namespace
}  // namespace tessera::gathers_test
