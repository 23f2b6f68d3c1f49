// cast, and the communication of mixed precision: gathers in bfloat16, gradients in the chosen element type.
#include "nn/transformations/cast.h"

#include <gtest/gtest.h>

#include <map>

#include "nn/layers/embedding.h"
#include "nn/transformations/accumulate_gradients.h"
#include "nn/transformations/remat.h"
#include "sharding/accounting/ledger.h"
#include "tests/nn/transformations/models.h"

namespace tessera::nn::cast_test {
namespace {

using namespace testing;

TEST(Cast, ChangesFloatingArraysOnly) {
  struct Model {
    Mlp mlp;
    Array steps, absent;
    int64_t width = 3;
  };
  const Model model{.mlp = Mlp::init(Key(0), {"embed", 4}, {"hidden", 8}), .steps = zeros({2}, int32), .absent = {}};
  const Model small = cast(model, bfloat16);
  for (const Leaf& leaf : leaves(small.mlp)) {
    EXPECT_EQ(leaf.value->dtype(), bfloat16) << leaf.path;
    EXPECT_TRUE(leaf.value->is_lazy()) << leaf.path;
  }
  EXPECT_TRUE(small.steps.is_same(model.steps));
  EXPECT_TRUE(small.absent.is_absent());
  EXPECT_EQ(small.width, 3);
  EXPECT_EQ(small.mlp.up.kernel.axes.to_string(), model.mlp.up.kernel.axes.to_string());
  for (const auto& [name, mesh_rules] : strategies()) {
    const Model placed = filter_shard(model, mesh_rules);
    // The order of casting and placing a lazy initializer does not matter.
    expect_trees_near(filter_shard(cast(model.mlp, bfloat16), mesh_rules), cast(placed.mlp, bfloat16), 0, name);
  }
}

// ---- communication

// The sizes of the model and its batch.
constexpr int64_t embed = 4, hidden = 8, rows = 8, parameters = 2 * embed * hidden + embed + hidden;

Array half(const Mlp& model, const Batch& batch) {
  return mean(square(astype(cast(model, bfloat16)(astype(batch.x, bfloat16)), float32) - batch.y));
}
Array half_again(const Mlp& model, const Batch& batch) {
  return mean(square(astype(nn::remat(cast(model, bfloat16))(astype(batch.x, bfloat16)), float32) - batch.y));
}

// {kind, in the backward pass} -> {count, bytes}
using Summary = std::map<std::pair<std::string, bool>, std::pair<int64_t, int64_t>>;

template <class Loss>
Summary summary_of(const Strategy& s, Loss loss, const GradientOptions& options = {}) {
  const Mlp model = filter_shard(make_mlp(), s.mesh_rules);
  const Batch batch = filter_shard(make_batch(), s.mesh_rules);
  CommLedger ledger;
  nn::value_and_grad(loss, options)(model, batch);
  Summary rows;
  for (const CommRecord& r : ledger.records()) {
    auto& [count, bytes] = rows[{r.kind, r.backward}];
    count += 1;
    bytes += r.bytes;
  }
  return rows;
}

const Strategy& strategy(const std::string& name) {
  static const std::vector<Strategy> all = strategies();
  for (const Strategy& s : all)
    if (s.name == name) return s;
  throw std::logic_error("no strategy " + name);
}

TEST(MixedPrecision, GathersInBfloat16AndReducesInTheChosenType) {
  constexpr int64_t sharded = 2 * embed * hidden + embed, rest = hidden, loss = 4;
  for (const std::string replicas : {"", ", private replicas"}) {
    SCOPED_TRACE(replicas);
    const Strategy &dp = strategy("dp" + replicas), &fsdp = strategy("fsdp" + replicas),
                   &tp = strategy("tp" + replicas);
    const auto data_parallel = [&](int64_t bytes) {
      return Summary{{{"all_reduce", true}, {1, parameters * bytes}}, {{"all_reduce", false}, {1, loss}}};
    };
    EXPECT_EQ(summary_of(dp, half), data_parallel(4));
    EXPECT_EQ(summary_of(dp, half_again), data_parallel(4));
    EXPECT_EQ(summary_of(dp, half, {.reduce_dtype = bfloat16}), data_parallel(2));
    EXPECT_EQ(summary_of(dp, mse, {.reduce_dtype = bfloat16}), data_parallel(2));
    // The first layer's kernel is not gathered for the backward pass, since the data need no gradient.
    const auto fully_sharded = [&](int64_t gathers, int64_t reductions) {
      return Summary{{{"all_gather", false}, {3, sharded * gathers}},
                     {{"all_gather", true}, {1, embed * hidden * gathers}},
                     {{"reduce_scatter", true}, {3, sharded * reductions / 4}},
                     {{"all_reduce", true}, {1, rest * reductions}},
                     {{"all_reduce", false}, {1, loss}}};
    };
    EXPECT_EQ(summary_of(fsdp, mse), fully_sharded(4, 4));
    EXPECT_EQ(summary_of(fsdp, half), fully_sharded(2, 4));
    EXPECT_EQ(summary_of(fsdp, half, {.reduce_dtype = bfloat16}), fully_sharded(2, 2));
    EXPECT_EQ(summary_of(fsdp, mse, {.reduce_dtype = bfloat16}), fully_sharded(4, 2));
    Summary again = fully_sharded(2, 4);
    again[{"all_gather", false}] = {6, 2 * sharded * 2};
    EXPECT_EQ(summary_of(fsdp, half_again), again);
    // The only all_reduce has the activations' element type. No parameter gradient is communicated.
    EXPECT_EQ(summary_of(tp, mse), (Summary{{{"all_reduce", false}, {1, rows * embed * 4}}}));
    for (const GradientOptions& options : {GradientOptions(), {.reduce_dtype = bfloat16}})
      EXPECT_EQ(summary_of(tp, half, options), (Summary{{{"all_reduce", false}, {1, rows * embed * 2}}}));
  }
}

TEST(MixedPrecision, GradientsAreShardedLikeTheFloat32Parameters) {
  for (const Strategy& s : strategies())
    for (const GradientOptions& options :
         {GradientOptions(), {.reduce_dtype = bfloat16}, {.reshard_after_forward = false}}) {
      const Mlp model = filter_shard(make_mlp(), s.mesh_rules);
      const Batch batch = filter_shard(make_batch(), s.mesh_rules);
      const Mlp exact = nn::value_and_grad(mse)(model, batch).second;
      for (const auto loss : {half, half_again}) {
        const auto [value, grads] = nn::value_and_grad(loss, options)(model, batch);
        EXPECT_EQ(value.dtype(), float32);
        EXPECT_EQ(types_of(grads), types_of(model)) << s.name;
        expect_trees_near(grads, exact, 3e-2, s.name);
      }
    }
}

// ---- rounding

struct Table {
  Param kernel;  // (1, 4)
};

Table make_table() { return {.kernel = {ones({1, 4}), {none, "embed"}}}; }

// Devices 0 to 3 contribute 256, 1, 1 and 1 to each gradient element: 259, which bfloat16 cannot represent.
Array column() { return array<float>({256, 1, 1, 1}, {4, 1}); }

std::vector<float> gradient(const Strategy& s, const std::function<Array(const Table&, const Array&)>& loss,
                            const GradientOptions& options = {}) {
  return nn::value_and_grad(loss, options)(filter_shard(make_table(), s.mesh_rules),
                                           device_put(column(), {"batch", none}, s.mesh_rules))
      .second.kernel.value.to_host<float>();
}

Array product(const Array& x, const Array& kernel) { return sum(astype(matmul(astype(x, bfloat16), kernel), float32)); }

TEST(MixedPrecision, TheSumOverDevicesIsNotRoundedOnTheWay) {
  const std::map<std::string, std::function<Array(const Table&, const Array&)>> uses{
      {"a cast", [](const Table& t, const Array& x) { return product(x, astype(t.kernel, bfloat16)); }},
      {"a cast under remat",
       [](const Table& t, const Array& x) { return nn::remat(product)(x, cast(t, bfloat16).kernel.value); }},
      {"a transposed cast",
       [](const Table& t, const Array& x) {
         return sum(astype(matmul(transpose(astype(t.kernel, bfloat16)), transpose(astype(x, bfloat16))), float32));
       }},
      {"a cast of a transposed weight",
       [](const Table& t, const Array& x) {
         return sum(astype(matmul(astype(transpose(t.kernel), bfloat16), transpose(astype(x, bfloat16))), float32));
       }},
      {"a reshaped cast",
       [](const Table& t, const Array& x) {
         return product(x, reshape(reshape(astype(t.kernel, bfloat16), {4}), {1, 4}));
       }},
      {"a scaled cast", [](const Table& t, const Array& x) { return product(x, astype(t.kernel, bfloat16) * 1.0); }},
  };
  for (const std::string name : {"dp", "fsdp", "dp, private replicas", "fsdp, private replicas"})
    for (const auto& [use, loss] : uses)
      for (const bool borrow : {true, false})
        EXPECT_EQ(gradient(strategy(name), loss, {.reshard_after_forward = borrow}), std::vector<float>(4, 259))
            << name << ", " << use << (borrow ? "" : ", gathered weights kept");
}

TEST(MixedPrecision, AChosenReductionRounds) {
  const auto exact = [](const Table& t, const Array& x) { return sum(matmul(x, t.kernel)); };
  for (const std::string name : {"dp", "fsdp", "dp, private replicas", "fsdp, private replicas"}) {
    EXPECT_EQ(gradient(strategy(name), exact), std::vector<float>(4, 259)) << name;
    for (const float rounded : gradient(strategy(name), exact, {.reduce_dtype = bfloat16})) {
      EXPECT_NE(rounded, 259) << name;
      EXPECT_NEAR(rounded, 259, 3) << name;
    }
  }
}

TEST(MixedPrecision, PartsOfABatchAreAddedUpInFloat32) {
  const auto loss = [](const Table& t, const Array& x) { return product(x, astype(t.kernel, bfloat16)); };
  for (const std::string name : {"dp", "fsdp", "dp, private replicas", "fsdp, private replicas"}) {
    const Strategy& s = strategy(name);
    std::vector<float> values(16, 1);
    values[0] = 256;
    const Array x = device_put(array<float>(values, {16, 1}), {"batch", none}, s.mesh_rules);
    const auto [value, grads] = nn::accumulate_gradients(loss, 4)(filter_shard(make_table(), s.mesh_rules), x);
    EXPECT_EQ(grads.kernel.value.to_host<float>(), std::vector<float>(4, 271 / 4.0f)) << name;
  }
}

TEST(MixedPrecision, IntegersAreRefused) {
  const Strategy& s = strategy("dp");
  expect_error_with(ErrorKind::dtype_mismatch, {"[cast]", "int32"}, [] { nn::cast(make_table(), int32); });
  expect_error_with(ErrorKind::dtype_mismatch, {"[value_and_grad]", "reduce_dtype", "int32"}, [&] {
    const auto total = [](const Table& t) { return sum(t.kernel); };
    nn::value_and_grad(total, {.reduce_dtype = int32})(filter_shard(make_table(), s.mesh_rules));
  });
}

}  // namespace
}  // namespace tessera::nn::cast_test
