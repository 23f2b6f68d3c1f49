// Weights gathered block by block across processes, ahead of their use: the same bits, and no more than asked for.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "sharding/distributed/processes.h"
#include "sharding/redistribution/gather_schedule.h"
#include "tests/sharding/law.h"

namespace tessera {
namespace {

using namespace tessera::testing;

constexpr int64_t layers = 4, width = 48, rows = 16;

// Two matrices a layer; one of them is cut along its columns.
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
  std::vector<int64_t> gathers;  // that have begun after each layer of the forward pass
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

// A sum of few elements is taken in double, one of a group in its own type; of two terms that is the same.
TEST(GathersAcrossProcesses, GiveTheSameInGroupsAndAhead) {
  for (const int64_t each : {1, 2}) {
    const Mesh mesh = make_mesh({{"data", each * process_count()}});
    const std::vector<Array> weights = weights_of(mesh);
    detail::clear_gather_orders();
    const Pass alone = pass_of(weights, mesh, {.group = GatherGroups::by_parameter, .prefetch = 0});
    EXPECT_EQ(alone.all_gathers, 4 * layers - 1) << "the first weight is not read in the backward pass";
    EXPECT_EQ(alone.reduce_scatters, 2 * layers);
    for (const GatherGroups group : {GatherGroups::by_block, GatherGroups::by_parameter})
      for (const int prefetch : {0, 1, 2, 100}) {
        SCOPED_TRACE(fmt::format("{} devices a process, {}, {} ahead", each,
                                 group == GatherGroups::by_block ? "by block" : "by parameter", prefetch));
        const GradientOptions options{.group = group, .prefetch = prefetch};
        const bool rounds = group == GatherGroups::by_block && mesh.size("data") > 2;
        for (int step = 0; step < 3; ++step) expect_same(pass_of(weights, mesh, options), alone, rounds ? 1e-6 : 0);
      }
  }
}

TEST(GathersAcrossProcesses, BeginAsManyBlocksAheadAsAskedFor) {
  const Mesh mesh = make_mesh({{"data", process_count()}});
  const std::vector<Array> weights = weights_of(mesh);
  const bool crosses = process_count() > 1;
  for (const int prefetch : {0, 1, 2}) {
    detail::clear_gather_orders();
    const GradientOptions options{.prefetch = prefetch};
    pass_of(weights, mesh, options);
    const Pass second = pass_of(weights, mesh, options);
    EXPECT_EQ(second.all_gathers, crosses ? 2 * layers : 0);
    EXPECT_EQ(second.reduce_scatters, crosses ? layers : 0);
    for (int64_t i = 0; i < layers; ++i) EXPECT_EQ(second.gathers[i], crosses ? i + 1 + prefetch : 0) << "layer " << i;
  }
}

// A ledger has when each was begun, and when the program came to need it. Between two layers lie some milliseconds.
TEST(GathersAcrossProcesses, AreBegunAheadByTheLedgersClockToo) {
  if (process_count() == 1) GTEST_SKIP() << "nothing is gathered";
  constexpr double pause = 2e-3;
  const Mesh mesh = make_mesh({{"data", process_count()}});
  const std::vector<Array> weights = weights_of(mesh);
  for (const int prefetch : {0, 1}) {
    detail::clear_gather_orders();
    pass_of(weights, mesh, {.prefetch = prefetch});
    CommLedger ledger;
    const Tape tape(weights, {.prefetch = prefetch});
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

TEST(GathersAcrossProcesses, OfAStepThatFailsAreForgotten) {
  const Mesh mesh = make_mesh({{"data", process_count()}});
  const std::vector<Array> weights = weights_of(mesh);
  const GradientOptions options{.prefetch = 2};
  const Pass expected = pass_of(weights, mesh, options);
  EXPECT_THROW(pass_of(weights, mesh, options, /*fails=*/true), std::runtime_error);
  expect_same(pass_of(weights, mesh, options), expected);
}

}  // namespace
}  // namespace tessera
