// Gradient reductions between processes during the backward pass: in one order, with the bits of reductions at its end.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sharding/accounting/communication_guard.h"
#include "sharding/array/autograd.h"
#include "sharding/autodiff/gradient_buckets.h"
#include "sharding/autodiff/tape.h"
#include "sharding/operations.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/linalg/linear_algebra.h"
#include "sharding/operations/reduce/reductions.h"
#include "sharding/operations/shape/creation.h"
#include "sharding/random/random.h"
#include "sharding/redistribution/communicate.h"
#include "sharding/redistribution/device_put.h"
#include "sharding/runtime/processes.h"
#include "tests/sharding/law.h"

namespace tessera::gradients_test {
namespace {

using namespace tessera::testing;

constexpr int64_t width = 1100;  // a square of floats fills one chunk
constexpr int64_t rows = 16;

// Four squares on the mesh, an unplaced square and an unplaced vector, and a square that the loss does not use.
std::vector<Array> parameters(Mesh mesh) {
  std::vector<Array> all;
  for (const uint64_t i : {1, 2, 3, 4})
    all.push_back(device_put(normal(Key(i), {width, width}) * 0.03, NamedSharding(mesh, P{})));
  all.push_back(normal(Key(5), {width, width}) * 0.03);
  all.push_back(normal(Key(6), {width}));
  all.push_back(device_put(normal(Key(7), {width, width}), NamedSharding(mesh, P{})));
  return all;
}

struct Pass {
  std::vector<Array> gradients;
  std::string ledger;
  int64_t begun = 0;  // before the last backward function, of begun_in_all
  int64_t begun_in_all = 0;
};

Pass pass_of(const std::vector<Array>& weights, Mesh mesh, const GradientOptions& options = {}) {
  Pass pass;
  const int64_t before = detail::PendingSum::count();
  CommLedger ledger;
  const Tape tape(weights, options);
  const auto& w = tape.shadows();
  const Array x = device_put(normal(Key(0), {rows, width}), NamedSharding(mesh, P{"data"}));
  Array y = tanh(matmul(x, w[0]));
  detail::before_backward(y.impl()->local, [&] { pass.begun = detail::PendingSum::count() - before; });
  for (size_t i = 1; i < 5; ++i) y = tanh(matmul(y, w[i]) + w[5]);
  pass.gradients = const_cast<Tape&>(tape).gradients(sum(y * y));
  pass.begun_in_all = detail::PendingSum::count() - before;
  pass.ledger = ledger_text(ledger);
  return pass;
}

// A budget that may throw is checked before any communication, so all gradients are reduced at the end.
Pass pass_at_the_end(const std::vector<Array>& weights, Mesh mesh, const GradientOptions& options = {}) {
  const CommBudget guard(int64_t{1} << 40, {.throw_on_exceed = true});
  return pass_of(weights, mesh, options);
}

void expect_same(const Pass& given, const Pass& expected) {
  EXPECT_EQ(given.ledger, expected.ledger);
  ASSERT_EQ(given.gradients.size(), expected.gradients.size());
  for (size_t i = 0; i < given.gradients.size(); ++i) {
    const Array &g = given.gradients[i], &e = expected.gradients[i];
    EXPECT_EQ(g.type_string(), e.type_string());
    EXPECT_EQ(g.impl()->local[0].device(), e.impl()->local[0].device());
    EXPECT_TRUE(at::equal(whole(g), whole(e))) << "parameter " << i;
  }
}

TEST(GradientsAcrossProcesses, BeginInTheBackwardPassAndHaveTheBitsOfTheEnd) {
  for (const int64_t each : {1, 2}) {
    SCOPED_TRACE(fmt::format("{} devices a process", each));
    const Mesh mesh = make_mesh({{"data", each * process_count()}});
    const std::vector<Array> weights = parameters(mesh);
    const Pass end = pass_at_the_end(weights, mesh), early = pass_of(weights, mesh);
    EXPECT_EQ(end.begun_in_all, 0);
    EXPECT_GE(early.begun, 3) << "what is used last in the model goes first";
    EXPECT_GT(early.begun_in_all, early.begun);
    expect_same(early, end);
  }
}

TEST(GradientsAcrossProcesses, CrossInAnotherElementType) {
  const Mesh mesh = make_mesh({{"data", process_count()}});
  const std::vector<Array> weights = parameters(mesh);
  const GradientOptions options{.reduce_dtype = float64};
  const Pass early = pass_of(weights, mesh, options);
  EXPECT_GE(early.begun, 3);
  expect_same(early, pass_at_the_end(weights, mesh, options));
}

TEST(GradientsAcrossProcesses, StayPendingWhereNothingIsReduced) {
  const Mesh mesh = make_mesh({{"data", process_count()}});
  EXPECT_EQ(pass_of(parameters(mesh), mesh, {.reduce = false}).begun_in_all, 0);
}

// ZeRO-1: gradients are reduce-scattered during the backward pass, or at its end under a guard that may throw.
TEST(GradientsAcrossProcesses, AreCutWhileTheBackwardPassRuns) {
  for (const int64_t each : {1, 2}) {
    const Mesh mesh = make_mesh({{"data", each * process_count()}});
    const std::vector<Array> weights = parameters(mesh);
    const Pass early = pass_of(weights, mesh, {.shard_gradients_over = {"data"}}), summed = pass_of(weights, mesh);
    const Pass end = pass_at_the_end(weights, mesh, {.shard_gradients_over = {"data"}});
    EXPECT_EQ(early.ledger, end.ledger);
    for (size_t i = 0; i < weights.size(); ++i) {
      EXPECT_EQ(early.gradients[i].type_string(), end.gradients[i].type_string());
      EXPECT_LE(difference(whole(early.gradients[i]), whole(summed.gradients[i])), 1e-5) << "parameter " << i;
      EXPECT_LE(difference(whole(end.gradients[i]), whole(summed.gradients[i])), 1e-5) << "parameter " << i;
    }
    EXPECT_EQ(early.gradients[0].sharding().spec(), width % mesh.size("data") ? P{} : P{"data"});
  }
}

using Order = std::vector<std::vector<size_t>>;

TEST(GradientChunks, BeginInOneOrderHoweverGradientsArrive) {
  const detail::GradientBuckets::Key floats{nullptr, 1, float32}, doubles{nullptr, 1, float64};
  const auto order_of = [&](const std::vector<size_t>& arrivals, bool rest = false) {
    detail::GradientChunks chunks;
    chunks.add(5, floats, 1 << 20, 1);   // a chunk
    chunks.add(4, floats, 1 << 19, 1);   // half a chunk
    chunks.add(3, doubles, 1 << 19, 1);  // a chunk of another element type
    chunks.add(2, floats, 1 << 19, 2);   // the other half; used twice
    chunks.add(1, doubles, 100, 1);      // small: joins the last chunk of its type
    chunks.add(0, floats, 5000, 1);      // the rest
    chunks.close();
    Order begun;
    const auto begin = [&](const auto&, const auto& chunk) { begun.push_back(chunk); };
    for (const size_t p : arrivals) chunks.arrive(p, begin);
    if (rest) chunks.begin_rest(begin);
    return begun;
  };
  const Order all{{5}, {3, 1}, {4, 2}, {0}};
  EXPECT_EQ(order_of({5, 4, 3, 2, 2, 1, 0}), all);
  EXPECT_EQ(order_of({0, 1, 2, 2, 3, 4, 5}), all);
  EXPECT_EQ(order_of({5, 4, 3, 2, 1}), (Order{{5}, {3, 1}})) << "one use of 2 has not come";
  EXPECT_EQ(order_of({4, 3, 2, 2, 1, 0}), Order{}) << "the first has not come";
  EXPECT_EQ(order_of({5}, true), all) << "the others are begun when there is nothing more to come";
}

TEST(GradientChunks, LeaveOutWhatIsLittleInAll) {
  detail::GradientChunks chunks;
  chunks.add(1, {nullptr, 1, float32}, 4000, 1);
  chunks.add(0, {nullptr, 1, float32}, 96, 1);
  chunks.close();
  EXPECT_FALSE(chunks.has(0) || chunks.has(1));
}

}  // namespace
}  // namespace tessera::gradients_test
