// Sums of activations over processes beside what is computed meanwhile: one communication, the same values.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "sharding/accounting/communication_guard.h"
#include "sharding/array/autograd.h"
#include "sharding/autodiff/remat.h"
#include "sharding/redistribution/engine.h"
#include "sharding/runtime/processes.h"
#include "tests/processes/ways.h"
#include "tests/sharding/law.h"

namespace tessera::overlapped_sums_test {
namespace {

using namespace tessera::testing;

constexpr int64_t blocks = 2, width = 64, rows = 300;  // more than a small sum in each half of any process's rows

// Of each block two products by columns that read the same, and one by rows; along "data" all is copied.
std::vector<Array> weights_of(Mesh mesh) {
  std::vector<Array> weights;
  for (int64_t i = 0; i < 3 * blocks; ++i) {
    const PartitionSpec spec = i % 3 == 2 ? P{"model"} : P{none, "model"};
    weights.push_back(device_put(normal(Key(i), {width, width}) * 0.1, NamedSharding(mesh, spec)));
  }
  return weights;
}

struct Pass {
  std::vector<Array> gradients;
  std::string ledger;
  int64_t begun_forward = 0, begun = 0;  // sums that ran beside something
  std::vector<int64_t> under_way;        // when the gradient of each weight was there
  int64_t left = 0;                      // under way when the tape was closed
  Array kept;                            // whose graph lives on
};

enum class Variant { plain, remat, fails };

Pass pass_of(const std::vector<Array>& weights, Mesh mesh, bool overlap, Variant variant = Variant::plain) {
  Pass pass;
  const int64_t before = detail::SumWork::count();
  const auto run = [&] {
    CommLedger ledger;
    Tape tape(weights, {.overlap_sums = overlap});
    const auto& w = tape.shadows();
    const auto block = [](const std::vector<Array>& a) {
      return std::vector<Array>{a[0] + matmul(tanh(matmul(a[0], a[1])) * matmul(a[0], a[2]), a[3])};
    };
    Array y = device_put(normal(Key(99), {rows, width}), NamedSharding(mesh, P{"data"}));
    for (int64_t i = 0; i < blocks; ++i) {
      const std::vector<Array> operands{y, w[3 * i], w[3 * i + 1], w[3 * i + 2]};
      y = variant == Variant::remat ? remat(block, operands)[0] : block(operands)[0];
    }
    pass.kept = y;
    pass.begun_forward = detail::SumWork::count() - before;
    detail::GradientHooks hooks;
    for (const Array& x : w)
      for (const detail::ArrayPtr& leaf : x.impl()->details->leaves)
        hooks.add(leaf->local[0], [&](const at::Tensor&) {
          pass.under_way.push_back(detail::works_under_way());
          if (variant == Variant::fails && pass.under_way.back()) throw std::runtime_error("stop");
        });
    pass.gradients = tape.gradients(sum(y * y));
    pass.ledger = ledger_text(ledger);
  };
  if (variant == Variant::fails)
    EXPECT_THROW(run(), std::exception);
  else
    run();
  pass.left = detail::works_under_way();
  pass.begun = detail::SumWork::count() - before;
  return pass;
}

void expect_same(const Pass& given, const Pass& expected) {
  EXPECT_EQ(given.ledger, expected.ledger);
  ASSERT_EQ(given.gradients.size(), expected.gradients.size());
  for (size_t i = 0; i < given.gradients.size(); ++i)
    EXPECT_LE(difference(whole(given.gradients[i]), whole(expected.gradients[i])), 1e-5) << "parameter " << i;
}

// "model" lies across the processes, alone or beside "data".
std::vector<Mesh> meshes() {
  const int64_t n = process_count();
  std::vector<Mesh> all{make_mesh({{"data", 1}, {"model", n}})};
  if (n == 4) all.push_back(make_mesh({{"data", 2}, {"model", 2}}));
  return all;
}

TEST(SumsBesideProducts, GiveTheSameAndBeginBeforeTheirTurn) {
  if (process_count() == 1) GTEST_SKIP() << "nothing is summed";
  for (const Mesh mesh : meshes()) {
    const std::vector<Array> weights = weights_of(mesh);
    const Pass alone = pass_of(weights, mesh, false), beside = pass_of(weights, mesh, true);
    expect_same(beside, alone);
    EXPECT_EQ(alone.begun_forward, 0);
    EXPECT_EQ(beside.begun_forward, 2 * blocks) << "two halves of each product by rows";
    // The first block reads no activation that wants a gradient.
    EXPECT_EQ(beside.begun - alone.begun, 2 * blocks + blocks - 1);
    const auto begun_beside = [](const Pass& pass) {
      return std::count_if(pass.under_way.begin(), pass.under_way.end(), [](int64_t n) { return n > 0; });
    };
    if (mesh.size("data") == 1) {
      EXPECT_EQ(begun_beside(alone), 0);
      EXPECT_EQ(begun_beside(beside), 3 * (blocks - 1)) << "weights of a block wait for the sum";
    }
  }
}

TEST(SumsBesideProducts, GiveTheSameUnderRemat) {
  for (const Mesh mesh : meshes()) {
    const std::vector<Array> weights = weights_of(mesh);
    expect_same(pass_of(weights, mesh, true, Variant::remat), pass_of(weights, mesh, false, Variant::remat));
  }
}

TEST(SumsBesideProducts, OfAStepThatFailsAreForgotten) {
  if (process_count() == 1) GTEST_SKIP() << "nothing is summed";
  const Mesh mesh = meshes()[0];
  const std::vector<Array> weights = weights_of(mesh);
  const Pass failed = pass_of(weights, mesh, true, Variant::fails);
  EXPECT_GT(failed.under_way.back(), 0);
  EXPECT_EQ(failed.left, 0) << "though its graph lives on";
  expect_same(pass_of(weights, mesh, true), pass_of(weights, mesh, false));
}

// What a guard may forbid does not begin before it is asked; several devices of a process have nothing to wait for.
TEST(SumsBesideProducts, AreNoneWhereAGuardIsOpenOrAProcessHasSeveralDevices) {
  const Mesh mesh = meshes()[0], virtual_devices = make_mesh({{"data", 2}, {"model", process_count()}});
  {
    const CommBudget budget(int64_t{1} << 40, {.throw_on_exceed = true});
    EXPECT_EQ(pass_of(weights_of(mesh), mesh, true).begun, 0);
  }
  const std::vector<Array> weights = weights_of(virtual_devices);
  EXPECT_EQ(pass_of(weights, virtual_devices, true).begun_forward, 0);
  expect_same(pass_of(weights, virtual_devices, true), pass_of(weights, virtual_devices, false));
}

// A pending product may be asked for in any other way, in several, or not at all.
TEST(SumsBesideProducts, LeaveAPendingProductAsItIs) {
  const Mesh mesh = meshes()[0];
  const std::vector<Array> weights = weights_of(mesh);
  const auto gradients_of = [&](bool overlap, const std::function<Array(const Array&, const Array&)>& use) {
    Tape tape(weights, {.overlap_sums = overlap});
    const auto& w = tape.shadows();
    const Array x = device_put(normal(Key(99), {rows, width}), NamedSharding(mesh, P{}));
    const Array y = matmul(x, w[0]);
    return tape.gradients(use(matmul(y, w[2]), matmul(tanh(y), w[5])));
  };
  const auto cut = [&](const Array& a) { return with_sharding_constraint(a, P{none, "model"}); };
  const std::vector<std::function<Array(const Array&, const Array&)>> uses{
      [](const Array& a, const Array& b) { return sum(square(a + b)); },
      [&](const Array& a, const Array&) { return sum(square(cut(a))); },
      [&](const Array& a, const Array& b) { return sum(square(a) * b) + sum(square(cut(a))); },
      [](const Array& a, const Array& b) { return sum(square(astype(a * 2.0, float64))) + mean(square(b)); }};
  for (size_t i = 0; i < uses.size(); ++i) {
    SCOPED_TRACE(i);
    const std::vector<Array> given = gradients_of(true, uses[i]), expected = gradients_of(false, uses[i]);
    for (size_t p = 0; p < given.size(); ++p) EXPECT_LE(difference(whole(given[p]), whole(expected[p])), 1e-5) << p;
  }
}

}  // namespace
}  // namespace tessera::overlapped_sums_test
