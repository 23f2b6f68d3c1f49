// Losses that are a sum and its weight: micro-batches of unequal weight give the gradient of the whole batch.
#include <gtest/gtest.h>

#include <vector>

#include "nn/transformations/accumulate_gradients.h"
#include "nn/transformations/cast.h"
#include "tests/nn/transformations/models.h"

namespace tessera::nn::weighted_losses_test {
namespace {

using testing::difference;
using testing::expect_error;
using testing::strategies;

constexpr int64_t rows = 24;

struct Batch {
  NamedArray x{"batch", none};
  NamedArray labels{"batch"}, weights{"batch"};
};

// Makes a batch in which `ignored` percent of the rows, and the first `run` rows, have the label -100.
Batch make_batch(uint64_t seed, double ignored, int64_t run) {
  const auto [x, labels, chosen, weights] = split<4>(Key(seed));
  const std::vector<float> lots = uniform(chosen, {rows}).to_host<float>(),
                           pick = uniform(labels, {rows}).to_host<float>();
  std::vector<int32_t> all;
  for (int i = 0; i < rows; ++i)
    all.push_back(i < run || lots[i] * 100 < ignored ? -100 : static_cast<int32_t>(pick[i] * 4));
  Batch batch;
  batch.x = normal(x, {rows, 4}, float64);
  batch.labels = array<int32_t>(all, {rows});
  batch.weights = astype(uniform(weights, {rows}), float64);
  return batch;
}

// Returns batches with few ignored rows, with most, with the whole first micro-batch, and with all rows ignored.
std::vector<Batch> batches() {
  return {make_batch(1, 20, 0), make_batch(2, 80, 0), make_batch(3, 40, 12), make_batch(4, 0, rows)};
}

Mlp make_mlp() { return cast(Mlp::init(Key(0), {"embed", 4}, {"hidden", 8}), float64); }

WeightedSum counted(const Mlp& model, const Batch& batch) {
  return cross_entropy_sum(model(batch.x), batch.labels, {.ignore_label = -100});
}
WeightedSum weighted(const Mlp& model, const Batch& batch) {
  return cross_entropy_sum(model(batch.x), batch.labels, {.weights = batch.weights, .ignore_label = -100});
}

// Compute the means directly: of the whole batch, without a mesh.
Array counted_mean(const Mlp& model, const Batch& batch) {
  return cross_entropy(model(batch.x), batch.labels, {.ignore_label = -100});
}
Array weighted_mean(const Mlp& model, const Batch& batch) {
  return cross_entropy(model(batch.x), batch.labels, {.weights = batch.weights, .ignore_label = -100});
}

template <class Sum, class Mean>
void expect_the_whole(const Sum& sum, const Mean& mean) {
  for (const Batch& all : batches()) {
    const auto [loss, grads] = nn::value_and_grad(mean)(make_mlp(), all);
    for (const auto& [name, mesh_rules] : strategies()) {
      const Mlp model = filter_shard(make_mlp(), mesh_rules);
      const Batch batch = filter_shard(all, mesh_rules);
      const auto [one_loss, one] = nn::value_and_grad(sum)(model, batch);
      EXPECT_NEAR(to_tensor(one_loss).template item<double>(), loss.template item<double>(), 1e-12) << name;
      EXPECT_LE(difference(one, grads), 1e-12) << name;
      for (const int n : {1, 2, 3, 6}) {
        const auto [sum_loss, sum_grads] = nn::accumulate_gradients(sum, n)(model, batch);
        EXPECT_NEAR(to_tensor(sum_loss).template item<double>(), loss.template item<double>(), 1e-12) << name << n;
        EXPECT_LE(difference(sum_grads, grads), 1e-12) << name << ", " << n << " parts";
        if (n == 1) {
          EXPECT_EQ(difference(sum_grads, one), 0) << name;
        }
        EXPECT_EQ(testing::types_of(sum_grads), testing::types_of(model)) << name << n;
      }
    }
  }
}

TEST(WeightedLosses, MicroBatchesOfUnequalCountsAreTheWholeBatch) { expect_the_whole(counted, counted_mean); }
TEST(WeightedLosses, MicroBatchesOfUnequalWeightsAreTheWholeBatch) { expect_the_whole(weighted, weighted_mean); }

// Averaging the means of micro-batches, as for a loss function that returns an Array, gives a different result.
TEST(WeightedLosses, TheBatchesAreUnequal) {
  const auto [loss, grads] = nn::value_and_grad(counted_mean)(make_mlp(), batches()[1]);
  const auto [mean, mean_grads] = nn::accumulate_gradients(counted_mean, 6)(make_mlp(), batches()[1]);
  EXPECT_GT(std::abs(mean.item<double>() - loss.item<double>()), 1e-3);
  EXPECT_GT(difference(mean_grads, grads), 1e-3);
}

TEST(WeightedLosses, GradientsMayStayPartialSumsAndShardedOverOtherAxes) {
  const Batch all = batches()[2];
  const auto [loss, grads] = nn::value_and_grad(counted_mean)(make_mlp(), all);
  for (const auto& [name, mesh_rules] : strategies()) {
    SCOPED_TRACE(name);
    const Mlp model = filter_shard(make_mlp(), mesh_rules);
    const auto [pending_loss, pending] =
        nn::accumulate_gradients(counted, 3, {.reduce = false})(model, filter_shard(all, mesh_rules));
    EXPECT_LE(difference(pending, grads), 1e-12);
  }
}

TEST(WeightedLosses, HalfPrecisionComesBackInItsOwnType) {
  const Mlp model = cast(make_mlp(), bfloat16);
  const auto loss_of = [](const Mlp& m, const Batch& b) {
    return cross_entropy_sum(m(astype(b.x, bfloat16)), b.labels, {.ignore_label = -100});
  };
  const auto [loss, grads] = nn::accumulate_gradients(loss_of, 3)(model, batches()[0]);
  EXPECT_EQ(loss.dtype(), float32);
  EXPECT_EQ(testing::types_of(grads), testing::types_of(model));
}

TEST(WeightedLosses, AuxComesBackAsWithAnArray) {
  const auto with_aux = [](const Mlp& model, const Batch& batch) {
    const WeightedSum loss = counted(model, batch);
    return std::pair(loss, loss.weight);
  };
  const Batch batch = batches()[0];
  const auto [value, grads] = nn::value_and_grad(with_aux)(make_mlp(), batch);
  const double tokens = value.second.item<double>();
  const auto [parts, part_grads] = nn::accumulate_gradients(with_aux, 3)(make_mlp(), batch);
  EXPECT_NEAR(parts.first.item<double>(), value.first.item<double>(), 1e-12);
  EXPECT_LE(difference(part_grads, grads), 1e-12);
  ASSERT_EQ(parts.second.size(), 3);
  double sum = 0;
  for (const Array& count : parts.second) sum += count.item<double>();
  EXPECT_EQ(sum, tokens);
}

TEST(WeightedLosses, AWeightThatIsTrainedIsRefused) {
  const auto loss = [](const Mlp& model, const Batch& batch) {
    return weighted_sum(square(sum(model(batch.x), {-1})), square(sum(model(batch.x), {-1})));
  };
  const std::string said =
      "[value_and_grad] the weight of the loss depends on what is trained, expected a constant: micro-batches add it "
      "up "
      "apart from the sum. Use stop_gradient on it, or return mean().";
  expect_error(ErrorKind::invalid_argument, said, [&] { nn::value_and_grad(loss)(make_mlp(), batches()[0]); });
  expect_error(ErrorKind::invalid_argument, said, [&] { nn::accumulate_gradients(loss, 2)(make_mlp(), batches()[0]); });
}

TEST(WeightedLosses, WithoutASumOrAWeightAreRefused) {
  const auto without_weight = [](const Mlp& model, const Batch& batch) {
    return WeightedSum{sum(model(batch.x)), Array()};
  };
  const auto without_sum = [](const Mlp&, const Batch&) { return WeightedSum{Array(), ones({})}; };
  const std::string no_weight =
      "[value_and_grad] the loss is a sum with an absent weight, expected a scalar to divide it by. Return "
      "weighted_sum(...), or both.";
  const std::string no_sum =
      "[value_and_grad] the loss is an absent array, expected a floating scalar. Return one from the loss function.";
  expect_error(ErrorKind::missing_array, no_weight,
               [&] { nn::value_and_grad(without_weight)(make_mlp(), batches()[0]); });
  expect_error(ErrorKind::missing_array, no_sum, [&] { nn::value_and_grad(without_sum)(make_mlp(), batches()[0]); });
  for (const int n : {1, 2}) {
    expect_error(ErrorKind::missing_array, no_weight,
                 [&] { nn::accumulate_gradients(without_weight, n)(make_mlp(), batches()[0]); });
    expect_error(ErrorKind::missing_array, no_sum,
                 [&] { nn::accumulate_gradients(without_sum, n)(make_mlp(), batches()[0]); });
  }
}

// ---- keys

struct Keys {
  Key key;
  std::vector<Key> more;
};

TEST(MicroBatches, HaveKeysOfTheirOwn) {
  const Keys keys{Key(5), {Key(6), Key(7)}};
  std::vector<Key> seen;
  const auto loss = [&](const Array& w, const Array& x, const Key& key, const Keys& others) {
    seen.insert(seen.end(), {key, others.key, others.more[0], others.more[1]});
    return mean(x * w);
  };
  const Array w = full({}, 2), x = ones({6});
  nn::accumulate_gradients(loss, 1)(w, x, Key(4), keys);
  EXPECT_EQ(seen, (std::vector<Key>{Key(4), Key(5), Key(6), Key(7)}));
  seen.clear();
  nn::accumulate_gradients(loss, 3)(w, x, Key(4), keys);
  std::vector<Key> expected;
  for (const uint32_t i : {0, 1, 2})
    for (const uint64_t seed : {4, 5, 6, 7}) expected.push_back(fold_in(Key(seed), i));
  EXPECT_EQ(seen, expected);
}

TEST(MicroBatches, DropDifferentElements) {
  std::vector<std::vector<float>> masks;
  const auto loss = [&](const Array& w, const Array& x, const Key& key) {
    const Array dropped = dropout(key, x, 0.5);
    masks.push_back(dropped.to_host<float>());
    return mean(dropped * w);
  };
  nn::accumulate_gradients(loss, 2)(full({}, 2), ones({128}), Key(1));
  EXPECT_NE(masks[0], masks[1]);
}

}  // namespace
}  // namespace tessera::nn::weighted_losses_test
