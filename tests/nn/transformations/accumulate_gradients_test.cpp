// accumulate_gradients: the gradient of the whole batch, computed from micro-batches, with one reduction.
#include "nn/transformations/accumulate_gradients.h"

#include <gtest/gtest.h>

#include <vector>

#include "nn/transformations/cast.h"
#include "nn/transformations/pipeline.h"
#include "nn/transformations/remat.h"
#include "sharding/accounting/ledger.h"
#include "tests/nn/transformations/models.h"
#include "tests/sharding/meshes.h"

namespace tessera::nn::accumulate_gradients_test {
namespace {

using testing::difference;
using testing::expect_error;
using testing::expect_error_with;
using testing::strategies;

constexpr int64_t rows = 24;

struct Batch {
  NamedArray x{"batch", none};
  NamedArray labels{"batch"};
  Array temperature, absent;
};

Batch make_batch() {
  Batch batch;
  std::vector<int32_t> labels;
  for (int i = 0; i < rows; ++i) labels.push_back(i * 5 % 4);
  batch.x = normal(Key(1), {rows, 4}, float64);
  batch.labels = array<int32_t>(labels, {rows});
  batch.temperature = full({}, 0.5, float64);
  return batch;
}

Mlp make_mlp() { return cast(Mlp::init(Key(0), {"embed", 4}, {"hidden", 8}), float64); }

Array loss_of(const Mlp& model, const Batch& batch) {
  return cross_entropy(model(batch.x) * batch.temperature, batch.labels) + 0.01 * sum(square(model.up.kernel));
}

template <class Model>
void expect_same(const Model& got, const Model& expected, double tolerance) {
  const Leaves a = leaves(got), b = leaves(expected);
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].value->path(), b[i].value->path());
    EXPECT_EQ(a[i].value->is_committed(), b[i].value->is_committed()) << a[i].path;
    EXPECT_TRUE(!b[i].value->is_committed() || a[i].value->sharding() == b[i].value->sharding()) << a[i].path;
  }
  EXPECT_EQ(testing::types_of(got), testing::types_of(expected));
  EXPECT_LE(difference(got, expected), tolerance);
}

TEST(AccumulateGradients, EqualsTheWholeBatch) {
  for (const auto& [name, mesh_rules] : strategies())
    for (const int n : {1, 2, 3, 6}) {
      SCOPED_TRACE(name + ", " + std::to_string(n) + " parts");
      const Mlp model = filter_shard(make_mlp(), mesh_rules);
      const Batch batch = filter_shard(make_batch(), mesh_rules);
      const auto [loss, grads] = nn::value_and_grad(loss_of)(model, batch);
      for (const GradientOptions& options : {GradientOptions(), {.reshard_after_forward = false}}) {
        const auto [mean_loss, mean_grads] = nn::accumulate_gradients(loss_of, n, options)(model, batch);
        EXPECT_NEAR(to_tensor(mean_loss).item<double>(), to_tensor(loss).item<double>(), 1e-13);
        expect_same(mean_grads, grads, 1e-13);
      }
    }
}

TEST(AccumulateGradients, AnyPlacementOfTheBatch) {
  const auto [loss, grads] = nn::value_and_grad(loss_of)(make_mlp(), make_batch());
  for (const Mesh mesh : tessera::testing::shared_and_private({{"a", 2}, {"b", 3}})) {
    for (const PartitionSpec& at : {P{}, P{"a"}, P{"b"}, P{{"a", "b"}}, P{{"b", "a"}}})
      for (const int n : {2, 4}) {
        SCOPED_TRACE(at.to_string() + ", " + std::to_string(n) + " parts");
        const Mlp model = filter_shard(make_mlp(), MeshRules(mesh, {{"embed", replicated}, {"hidden", "a"}}));
        Batch batch = make_batch();
        batch.x = device_put(batch.x, NamedSharding(mesh, at));
        batch.labels = device_put(batch.labels, NamedSharding(mesh, at));
        const auto [mean_loss, mean_grads] = nn::accumulate_gradients(loss_of, n)(model, batch);
        EXPECT_NEAR(to_tensor(mean_loss).item<double>(), to_tensor(loss).item<double>(), 1e-13);
        EXPECT_LE(difference(mean_grads, grads), 1e-13);
      }
  }
}

TEST(AccumulateGradients, WithoutAMesh) {
  const auto [loss, grads] = nn::value_and_grad(loss_of)(make_mlp(), make_batch());
  const auto [mean_loss, mean_grads] = nn::accumulate_gradients(loss_of, 4)(make_mlp(), make_batch());
  EXPECT_NEAR(to_tensor(mean_loss).item<double>(), to_tensor(loss).item<double>(), 1e-13);
  expect_same(mean_grads, grads, 1e-13);
  // A placed model with an unplaced batch.
  const MeshRules mesh_rules = strategies()[3].mesh_rules;
  const auto [joined_loss, joined] =
      nn::accumulate_gradients(loss_of, 4)(filter_shard(make_mlp(), mesh_rules), make_batch());
  EXPECT_NEAR(to_tensor(joined_loss).item<double>(), to_tensor(loss).item<double>(), 1e-13);
}

WeightedSum weighted_loss(const Mlp& model, const Batch& batch) {
  return {sum(square(model(batch.x))), full({}, static_cast<double>(batch.x.value.shape(0)))};  // in float32
}

// A gradient has the sharding of its parameter, even if only the batch is on a mesh.
TEST(AccumulateGradients, OfAModelThatWasNeverPlaced) {
  Batch batch = filter_shard(make_batch(), strategies()[1].mesh_rules);
  ASSERT_TRUE(batch.x.value.is_committed());
  const auto expect_all = [&](const auto& loss) {
    const auto grads = nn::value_and_grad(loss)(make_mlp(), batch).second;
    for (const int n : {1, 2, 3}) {
      expect_same(nn::accumulate_gradients(loss, n)(make_mlp(), batch).second, grads, 1e-13);
      expect_same(nn::pipeline(loss, {.num_micro_batches = n})(make_mlp(), batch).second, grads, 1e-13);
    }
  };
  expect_all([](const Mlp& model, const Batch& batch) { return cross_entropy(model(batch.x), batch.labels); });
  expect_all(weighted_loss);
}

// 1 / 24 in float32 would have an error of 1e-8.
TEST(AccumulateGradients, Float64IsNotDividedInFloat32) {
  const auto [loss, grads] = nn::value_and_grad(weighted_loss)(make_mlp(), make_batch());
  const auto [mean_loss, mean_grads] = nn::accumulate_gradients(weighted_loss, 3)(make_mlp(), make_batch());
  EXPECT_NEAR(to_tensor(mean_loss).item<double>(), to_tensor(loss).item<double>(), 1e-13);
  expect_same(mean_grads, grads, 1e-13);
}

// ---- communication

struct Row {
  std::string kind;
  int64_t count, bytes;
  bool operator==(const Row&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Row& row) {
  return out << row.kind << ' ' << row.count << ' ' << row.bytes;
}

std::vector<Row> rows_of(const CommLedger& ledger) {
  std::vector<Row> table;
  for (const char* kind : {"all_gather", "reduce_scatter", "all_reduce", "all_to_all"})
    if (ledger.count(kind)) table.push_back({kind, ledger.count(kind), ledger.bytes(kind)});
  return table;
}

constexpr int64_t kernel = 4 * 8 * 8, parameters = 2 * kernel + (8 + 4) * 8, scalar = 8;

using Table = std::vector<Row>;

TEST(AccumulateGradients, ReducesOnceForAllParts) {
  const auto measure = [](const testing::Strategy& s, int n, const GradientOptions& options = {}) {
    const Mlp model = filter_shard(make_mlp(), s.mesh_rules);
    const Batch batch = filter_shard(make_batch(), s.mesh_rules);
    CommLedger ledger;
    nn::accumulate_gradients(loss_of, n, options)(model, batch);
    return rows_of(ledger);
  };
  for (const testing::Strategy& s : strategies())
    for (const int n : {1, 2, 3}) {
      SCOPED_TRACE(s.name + ", " + std::to_string(n) + " parts");
      const std::string strategy = s.name.substr(0, s.name.find(','));
      if (strategy == "one") {
        EXPECT_EQ(measure(s, n), Table());
      } else if (strategy == "dp") {  // the losses and one bucket
        EXPECT_EQ(measure(s, n), (Table{{"all_reduce", n + 1, n * scalar + parameters}}));
        EXPECT_EQ(measure(s, n, {.reduce_dtype = float32}),
                  (Table{{"all_reduce", n + 1, n * scalar + parameters / 2}}));
        EXPECT_EQ(measure(s, n, {.reduce = false}), (Table{{"all_reduce", n, n * scalar}}));
      } else if (strategy == "fsdp") {
        // Per micro-batch, sharded weights are gathered, reduce-scattered, and gathered again if the backward pass
        // reads them. The replicated bias is reduced once at the end.
        EXPECT_EQ(measure(s, n), (Table{{"all_gather", n * 4, n * (3 * kernel + 4 * 8)},
                                        {"reduce_scatter", n * 3, n * (2 * kernel + 4 * 8) / 4},
                                        {"all_reduce", n + 1, n * scalar + 8 * 8}}));
      }
    }
}

TEST(AccumulateGradients, NothingMovesForTheParts) {
  const testing::Strategy s = strategies()[1];
  const Mesh mesh = s.mesh_rules.mesh();
  const auto parts_of = [&](const PartitionSpec& at) {
    const Array x = device_put(normal(Key(1), {rows, 4}), NamedSharding(mesh, at));
    CommLedger ledger;
    nn::accumulate_gradients([](const Array& w, const Array& part) { return mean(part * 1.0) * w; }, 3,
                             {.reduce = false})(full({}, 2), x);
    for (const CommRecord& r : ledger.records())
      if (r.operation != std::string("loss") && r.bytes > 4) return false;
    return true;
  };
  EXPECT_TRUE(parts_of(P{"data"}));
  EXPECT_TRUE(parts_of({}));
}

TEST(AccumulateGradients, EveryPartIsSeenOnceAndEachDeviceKeepsItsRows) {
  const testing::Strategy s = strategies()[1];
  std::vector<int32_t> numbers(rows);
  for (int i = 0; i < rows; ++i) numbers[i] = i;
  const Array ids = device_put(array<int32_t>(numbers, {rows}), {"batch"}, s.mesh_rules);
  std::vector<std::vector<int32_t>> seen;
  const auto watch = [&](const Array& w, const Array& part) {
    seen.push_back(part.to_host<int32_t>());
    return w * 1.0;
  };
  nn::accumulate_gradients(watch, 3)(full({}, 2), ids);
  EXPECT_EQ(seen, (std::vector<std::vector<int32_t>>{
                      {0, 1, 6, 7, 12, 13, 18, 19}, {2, 3, 8, 9, 14, 15, 20, 21}, {4, 5, 10, 11, 16, 17, 22, 23}}));
}

TEST(AccumulateGradients, TogetherWithRematCastsAndPartialSums) {
  const auto mixed = [](const Mlp& model, const Batch& batch) {
    const Mlp small = cast(model, float32);
    return cross_entropy(astype(nn::remat(small)(astype(batch.x, float32)), float64), batch.labels);
  };
  for (const auto& [name, mesh_rules] : strategies()) {
    SCOPED_TRACE(name);
    const Mlp model = filter_shard(make_mlp(), mesh_rules);
    const Batch batch = filter_shard(make_batch(), mesh_rules);
    const auto [loss, grads] = nn::value_and_grad(mixed)(model, batch);
    const auto [mean_loss, mean_grads] = nn::accumulate_gradients(mixed, 3)(model, batch);
    expect_same(mean_grads, grads, 1e-7);
    const auto [pending_loss, pending] = nn::accumulate_gradients(mixed, 3, {.reduce = false})(model, batch);
    EXPECT_LE(difference(pending, grads), 1e-7);
  }
}

// A sharded and a replicated array are split into the same rows.
TEST(AccumulateGradients, RowsThatBelongTogetherStayTogether) {
  const MeshRules mesh_rules = strategies()[1].mesh_rules;
  const Array x = device_put(normal(Key(3), {rows}, float64), {"batch"}, mesh_rules);
  const Array same = array<double>(x.to_host<double>(), {rows});
  const auto distance = [](const Array& w, const Array& a, const Array& b) { return mean(square(w * a - b)); };
  EXPECT_EQ(nn::accumulate_gradients(distance, 3)(full({}, 1, float64), x, same).first.item<double>(), 0);
}

TEST(AccumulateGradients, HalfPrecisionAddsUpInFloat32) {
  constexpr int64_t parts = 512;
  const Array w = full({}, 1, bfloat16), x = ones({parts});
  const auto product = [](const Array& w, const Array& x) { return mean(astype(w, float32) * x); };
  const auto [loss, gradient] = nn::accumulate_gradients(product, parts)(w, x);
  EXPECT_EQ(gradient.dtype(), bfloat16);
  EXPECT_EQ(astype(gradient, float32).item<double>(), 1);
}

// ---- errors

struct PaddedModel {
  Array v, w;
};

TEST(AccumulateGradients, AGradientIsPaddedAsItsParameterIs) {
  const Mesh mesh = make_mesh({{"a", 8}});
  const auto weighted = [](const PaddedModel& m, const Array& x) {
    return WeightedSum{sum(square(m.v)) + sum(square(m.w)), sum(square(x))};
  };
  const auto unused = [](const PaddedModel& m, const Array& x) {
    return WeightedSum{sum(square(m.v)), sum(square(x))};
  };
  for (const int64_t size : {1, 5, 8}) {
    const PaddedModel model{device_put(ones({4}), NamedSharding(mesh, {})),
                            device_put(ones({size, 4}), NamedSharding(mesh, P{{"a", Uneven::pad}}))};
    const std::string type = model.w.type_string();
    const auto check = [&](const auto& loss) {
      for (const int64_t n : {1, 2})
        for (const bool reduce : {true, false}) {
          EXPECT_EQ(accumulate_gradients(loss, n, {.reduce = reduce})(model, ones({2, 1})).second.w.type_string(),
                    type);
          EXPECT_EQ(pipeline(loss, {.num_micro_batches = n}, GradientOptions{.reduce = reduce})(model, ones({2, 1}))
                        .second.w.type_string(),
                    type);
        }
    };
    check(weighted), check(unused);
  }
}

TEST(AccumulateGradientsErrors, NoRows) {
  expect_error_with(ErrorKind::not_divisible, {"[accumulate_gradients]", "float64[0,4] has no rows", "2 micro-batches"},
                    [] {
                      nn::accumulate_gradients([](const Mlp& m, const Array& x) { return mean(m(x)); }, 2)(
                          make_mlp(), zeros({0, 4}, float64));
                    });
}

TEST(AccumulateGradientsErrors, Indivisible) {
  const MeshRules mesh_rules = strategies()[1].mesh_rules;
  const Mlp model = filter_shard(make_mlp(), mesh_rules);
  expect_error(ErrorKind::not_divisible,
               "[accumulate_gradients] x: 6 rows on each of 4 devices are not divisible by 4 micro-batches. Change one "
               "of them.",
               [&] { nn::accumulate_gradients(loss_of, 4)(model, filter_shard(make_batch(), mesh_rules)); });
  expect_error_with(ErrorKind::not_divisible, {"[accumulate_gradients]", "float64[24,4]", "24 rows", "5 micro-batches"},
                    [] {
                      nn::accumulate_gradients([](const Mlp& m, const Array& x) { return mean(m(x)); }, 5)(
                          make_mlp(), make_batch().x.value);
                    });
}

TEST(AccumulateGradientsErrors, UnknownAxis) {
  const MeshRules mesh_rules = strategies()[1].mesh_rules;
  const Mlp model = filter_shard(make_mlp(), mesh_rules);
  for (const int n : {1, 2})
    expect_error_with(ErrorKind::unknown_axis, {"shard_gradients_over: \"dta\" given, expected an axis of the mesh"}, [&] {
      nn::accumulate_gradients(loss_of, n, {.shard_gradients_over = {"dta"}})(model,
                                                                              filter_shard(make_batch(), mesh_rules));
    });
}

TEST(AccumulateGradientsErrors, NoParts) {
  for (const int n : {0, -1})
    expect_error(ErrorKind::invalid_argument,
                 "[accumulate_gradients] " + std::to_string(n) + " micro-batches given, expected 1 or more.",
                 [&] { nn::accumulate_gradients(loss_of, n); });
}

}  // namespace
}  // namespace tessera::nn::accumulate_gradients_test
