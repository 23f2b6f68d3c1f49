// The state and communication of layers: running statistics, caches, element types, sharded experts, LoRA adapters.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "nn/checkpoint/foreign_weights.h"
#include "nn/layers/activation.h"
#include "nn/layers/linear.h"
#include "nn/layers/module_scope.h"
#include "nn/layers/moe.h"
#include "nn/layers/sequential.h"
#include "nn/layers/transformer.h"
#include "nn/placement/filter_shard.h"
#include "nn/transformations/cast.h"
#include "nn/transformations/value_and_grad.h"
#include "sharding/accounting/ledger.h"
#include "sharding/operations.h"
#include "sharding/random/random.h"
#include "sharding/redistribution/device_put.h"
#include "tests/nn/layers/stored_layers.h"
#include "tests/nn/support.h"

namespace tessera::nn::state_test {
namespace {

using testing::expect_near;

const Axis embed{"embed", 8}, hidden{"hidden", 16}, heads{"heads", 8};

std::vector<std::string> kinds_of(const CommLedger& ledger) {
  std::vector<std::string> kinds;
  for (const CommRecord& r : ledger.records()) kinds.push_back(std::string(r.kind));
  return kinds;
}

TEST(BatchNorm, RunningStatisticsMoveAndThenServe) {
  BatchNorm norm = BatchNorm::init({"embed", 2}, {.momentum = 0.5});
  const Array x = array<float>(std::vector<float>{1, 2, 3, 6}, {2, 2});
  norm(x);
  EXPECT_EQ(norm.mean.value.to_host<float>(), (std::vector<float>{1, 2}));
  EXPECT_EQ(norm.variance.value.to_host<float>(), (std::vector<float>{1, 2.5}));
  norm.inference = true;
  const Array y = norm(x);
  EXPECT_EQ(norm.mean.value.to_host<float>(), (std::vector<float>{1, 2}));
  expect_near(y, array<float>(std::vector<float>{0, 0, 2, 4 / std::sqrt(2.5F)}, {2, 2}), 1e-5, "by what was kept");
}

TEST(BatchNorm, StatisticsOfAShardedBatchAreTwoSums) {
  const MeshRules mesh_rules(make_mesh({{"data", 4}}), {{"batch", "data"}, {"embed", replicated}});
  BatchNorm norm = filter_shard(BatchNorm::init(embed), mesh_rules), alone = BatchNorm::init(embed);
  const Array x = normal(Key(1), {8, 8});
  CommLedger ledger;
  const Array y = norm(device_put(x, {"batch", "embed"}, mesh_rules));
  EXPECT_EQ(kinds_of(ledger), (std::vector<std::string>{"all_reduce", "all_reduce"}));
  expect_near(y, alone(x), 1e-6, "value");
  expect_near(norm.variance, alone.variance, 1e-6, "running variance");
  EXPECT_TRUE(norm.mean.value.is_fully_replicated());
}

// A call inside value_and_grad updates the model's statistics; a call in inference mode does not.
TEST(BatchNorm, TrainsThroughValueAndGrad) {
  const auto loss = [](BatchNorm& norm, const Array& x) { return sum(square(norm(x))); };
  const Array x = normal(Key(1), {8, 8});
  BatchNorm norm = BatchNorm::init(embed), alone = norm;
  const auto [value, gradient] = value_and_grad(loss)(norm, x);
  alone(x);
  expect_near(norm.mean, alone.mean, 1e-6, "running mean");
  expect_near(norm.variance, alone.variance, 1e-6, "running variance");
  EXPECT_TRUE(gradient.mean.value.is_absent());
  BatchNorm served = inference_mode(norm);
  served(x);
  EXPECT_TRUE(served.mean.value.is_same(norm.mean));
}

TEST(SpectralNorm, TheLargestSingularValueBecomesOne) {
  auto norm = SpectralNorm<Linear>::init(Key(1), Linear::init(Key(0), {"in", 2}, {"out", 2}, {.bias = false}));
  norm.layer.kernel.value = array<float>(std::vector<float>{3, 0, 0, 1}, {2, 2});
  for (int i = 0; i < 20; ++i) norm(ones({1, 2}));
  const Array before = norm.power.in;
  norm.inference = true;
  expect_near(norm(ones({1, 2})), array<float>(std::vector<float>{1, 1 / 3.0F}, {1, 2}), 1e-5, "divided by 3");
  EXPECT_TRUE(norm.power.in.value.is_same(before));
}

TEST(Dropout, InferenceNeedsNoKey) {
  const Array x = ones({4});
  EXPECT_TRUE((Dropout{.rate = 0.5, .inference = true}(x).is_same(x)));
  EXPECT_TRUE((Dropout{.rate = 0}(x).is_same(x)));
  EXPECT_EQ((Dropout{.rate = 1}(x, Key(0)).to_host<float>()), std::vector<float>(4, 0));
}

TEST(Sequential, EachLayerHasAKeyOfItsOwn) {
  const auto twice = sequential(Dropout{.rate = 0.5}, Dropout{.rate = 0.5});
  const Array x = ones({64});
  const Array first = dropout(fold_in(Key(7), 0), x, 0.5), both = dropout(fold_in(Key(7), 1), first, 0.5);
  expect_near(twice(x, Key(7)), both, 0, "two draws");
  const auto mixed = sequential(Identity{}, LayerNorm::init(embed));
  EXPECT_EQ(testing::paths_of(leaves(mixed)), (std::vector<std::string>{"layers.1.scale", "layers.1.bias"}));
}

// No layer changes, whichever layer fails, and also inside a nested Sequential.
TEST(Sequential, ACallThatFailsChangesNoLayer) {
  auto net = sequential(BatchNorm::init(embed), sequential(BatchNorm::init(embed)), Linear::init(Key(0), embed, hidden),
                        Linear::init(Key(1), embed, hidden));
  const BatchNorm &first = std::get<0>(net.layers), &inner = std::get<0>(std::get<1>(net.layers).layers);
  const Array x = normal(Key(2), {4, 8});
  EXPECT_THROW(net(x), Error);
  for (const BatchNorm* norm : {&first, &inner}) {
    EXPECT_EQ(norm->mean.value.to_host<float>(), std::vector<float>(8, 0));
    EXPECT_EQ(norm->variance.value.to_host<float>(), std::vector<float>(8, 1));
  }
  std::get<3>(net.layers) = Linear::init(Key(1), hidden, embed);
  net(x);
  BatchNorm alone = BatchNorm::init(embed);
  alone(x);
  expect_near(first.mean, alone.mean, 0, "moved once");
  EXPECT_NE(inner.variance.value.to_host<float>(), std::vector<float>(8, 1));
}

TEST(Sequential, TakesFunctionsOfAnArray) {
  int calls = 0;
  auto net = sequential([](const Array& x) { return 2 * x; },
                        [&calls](const Array& x) {
                          ++calls;
                          return x + 1;
                        },
                        SpectralNorm<Linear>::init(Key(0), Linear::init(Key(1), embed, hidden)));
  EXPECT_EQ(net(ones({3, 8})).shape(), (Shape{3, 16}));
  EXPECT_EQ(calls, 1);
}

TEST(DTypePolicy, ParametersComputeAndOutput) {
  const Linear layer =
      Linear::init(Key(0), embed, hidden, {.dtypes = {.params = bfloat16, .compute = float32, .output = float16}});
  EXPECT_EQ(layer.kernel.value.dtype(), bfloat16);
  EXPECT_EQ(layer.bias->value.dtype(), bfloat16);
  const Array y = layer(ones({2, 8}));
  EXPECT_EQ(y.dtype(), float16);
  expect_near(astype(y, float32), matmul(ones({2, 8}), astype(layer.kernel, float32)), 1e-3, "computed in float32");
}

// Every layer accepts a policy: bfloat16 inside, float32 outside.
TEST(DTypePolicy, OfEveryKindOfLayer) {
  const DTypePolicy dtypes{.compute = bfloat16, .output = float32};
  const Array x = normal(Key(1), {2, 4, 8}), image = normal(Key(1), {2, 4, 4, 8});
  const std::vector<Array> results = {
      Linear::init(Key(0), embed, hidden, {.dtypes = dtypes})(x),
      Mlp::init(Key(0), embed, hidden, {.dtypes = dtypes})(x),
      GatedMlp::init(Key(0), embed, hidden, {.dtypes = dtypes})(x),
      LayerNorm::init(embed, 1e-5, dtypes)(x),
      RMSNorm::init(embed, 1e-5, dtypes)(x),
      GroupNorm::init(embed, 2, 1e-5, dtypes)(x),
      BatchNorm::init(embed, {.dtypes = dtypes})(x),
      PReLU::init(embed, {.dtypes = dtypes})(x),
      Conv::init(Key(0), embed, hidden, {3, 3}, {.dtypes = dtypes})(image),
      ConvTranspose::init(Key(0), embed, hidden, {3, 3}, {.dtypes = dtypes})(image),
      scan(LSTMCell::init(Key(0), embed, hidden, {.dtypes = dtypes}), x).second,
      scan(GRUCell::init(Key(0), embed, hidden, {.dtypes = dtypes}), x).second,
      Embedding::init(Key(0), {"vocab", 4}, embed, init::normal(1), dtypes)(zeros({2}, int32)),
      MultiheadAttention::init(Key(0), embed, heads, 2, {.dtypes = dtypes})(x),
      EncoderBlock::init(Key(0), embed, heads, 2, hidden, {.dtypes = dtypes})(x),
      MoeMlp::init(Key(0), embed, hidden, {"experts", 2}, {.dtypes = dtypes})(x).out,
  };
  for (size_t i = 0; i < results.size(); ++i) EXPECT_EQ(results[i].dtype(), float32) << i;
}

TEST(DecoderBlock, DecodesAsItComputesAtOnce) {
  const DecoderBlock block =
      DecoderBlock::init(Key(0), embed, heads, 2, hidden, {.rope = RotaryEmbedding{.base = 100}, .context = embed});
  const Array x = normal(Key(1), {2, 5, 8}), context = normal(Key(2), {2, 3, 8});
  KeyValueCache cache;
  const Array first = block.decode(slice_in_dim(x, 0, 3, 1), cache, context);
  const Array second = block.decode(slice_in_dim(x, 3, 5, 1), cache, context);
  expect_near(concatenate({first, second}, 1), block(x, {.context = context}), 1e-5, "in two parts");
  EXPECT_EQ(cache.length(), 5);
}

TEST(MultiheadAttention, AMaskHidesKeys) {
  const auto layer = MultiheadAttention::init(Key(0), embed, heads, 2, {.causal = false});
  const Array x = normal(Key(1), {1, 4, 8}), other = normal(Key(2), {1, 4, 8});
  const Array mask = array<bool>({true, true, false, false});
  const Array changed = concatenate({slice_in_dim(x, 0, 2, 1), slice_in_dim(other, 2, 4, 1)}, 1);
  const auto first_two = [](const Array& y) { return slice_in_dim(y, 0, 2, 1); };
  expect_near(first_two(layer(x, {.mask = mask})), first_two(layer(changed, {.mask = mask})), 1e-6, "unseen");
}

// Experts and batch are sharded over one axis.
MeshRules experts_with_batch() {
  return {make_mesh({{"data", 4}}),
          {{"batch", "data"}, {"experts", "data"}, {"seq", replicated}, {"embed", replicated}, {"hidden", replicated}}};
}

// An all_to_all sends tokens to their experts, and another one sends the results back.
TEST(MoeMlp, TokensTravelByAllToAll) {
  const MeshRules mesh_rules = experts_with_batch();
  const MoeMlp moe = filter_shard(MoeMlp::init(Key(0), embed, hidden, {"experts", 8}), mesh_rules);
  const Array x = device_put(normal(Key(1), {4, 8, 8}), {"batch", "seq", "embed"}, mesh_rules);
  CommLedger ledger;
  moe(x);
  int64_t sent = 0, rest = 0;
  for (const CommRecord& r : ledger.records()) (r.kind == "all_to_all" ? sent : rest) += r.bytes;
  // Each all_to_all gives a device (experts, batch, capacity, embed) / 4. The all_reduces are for the balance loss and
  // the dropped tokens.
  EXPECT_EQ(kinds_of(ledger), (std::vector<std::string>{"all_reduce", "all_reduce", "all_to_all", "all_to_all"}));
  EXPECT_EQ(sent, 2 * 8 * 4 * moe.capacity(8) * 8 * 4 / 4);
  EXPECT_EQ(rest, 8 * 4 + 4);
}

struct Routed {
  MoeMlp moe;
  Param x;
};

// Backward is the mirror image of forward: no kernel is communicated, and no all_reduce is needed.
TEST(MoeMlp, WithoutACapacityTokensAreGatheredAndAnswersScattered) {
  const MoeMlp moe =
      MoeMlp::init(Key(0), embed, hidden, {"experts", 8}, {.capacity_factor = std::nullopt, .gated = true});
  const auto routed =
      filter_shard(Routed{moe, {normal(Key(1), {4, 8, 8}), {"batch", "seq", "embed"}}}, experts_with_batch());
  const int64_t tokens = 4 * 8 * 8 * 4, choices = 4 * 8 * 2 * 4, sizes = 4 * 8 * 4;
  std::map<std::string, int64_t> bytes;
  CommLedger ledger;
  value_and_grad([](const Routed& r) { return sum(square(r.moe(r.x).out)); })(routed);
  for (const CommRecord& r : ledger.records()) bytes[r.kind + (r.backward ? " back" : "")] += r.bytes;
  EXPECT_EQ(bytes["all_gather"], tokens + 2 * choices + sizes);
  EXPECT_EQ(bytes["reduce_scatter"], tokens / 4);
  EXPECT_EQ(bytes["all_gather back"], tokens);
  EXPECT_EQ(bytes["reduce_scatter back"], tokens / 4 + choices / 4);
}

// Applies every expert to every token, and weights the result by the router's probability if the expert is among the
// top k.
Array by_a_loop(const MoeMlp& moe, const Array& x) {
  const Array p = softmax(matmul(x, moe.router)), least = slice_in_dim(top_k(p, 2).values, 1, 2, 2);
  const Array chosen = where(p >= least, p, 0.0), weights = chosen / sum(chosen, {-1}, true);
  Array out = zeros_like(x);
  for (int64_t e = 0; e < p.shape(2); ++e) {
    const auto kernel = [&](const Param& all) { return index_in_dim(all.value, e, 0, false); };
    const Array answer = matmul(silu(matmul(x, kernel(*moe.gate))) * matmul(x, kernel(moe.up)), kernel(moe.down));
    out = out + index_in_dim(weights, e, 2, true) * answer;
  }
  return out;
}

TEST(MoeMlp, WithoutACapacityIsALoopOverExperts) {
  const MoeMlp moe = MoeMlp::init(Key(0), embed, hidden, {"experts", 4}, {.capacity_factor = {}, .gated = true});
  const Array x = normal(Key(1), {3, 8, embed.size});
  const auto loss = [&](const auto& f) {
    return value_and_grad([f](const MoeMlp& layer, const Array& in) { return sum(square(f(layer, in))); })(moe, x);
  };
  const auto [value, gradients] = loss([](const MoeMlp& layer, const Array& in) { return layer(in).out; });
  const auto [expected, expected_gradients] = loss(by_a_loop);
  expect_near(moe(x).out, by_a_loop(moe, x), 1e-5, "out");
  testing::expect_trees_near(gradients, expected_gradients, 1e-4, "gradients");
  EXPECT_EQ(moe(x).dropped.item<float>(), 0);
}

// The bias selects the experts, and the scores are the weights. Shared experts process every token.
TEST(MoeMlp, OfSigmoidScoresIsALoopOverExperts) {
  for (const std::optional<double> capacity : {std::optional<double>(), std::optional(4.0)}) {
    MoeMlp moe = MoeMlp::init(Key(0), embed, hidden, {"experts", 4},
                              {.capacity_factor = capacity,
                               .gated = true,
                               .score = RouterScore::sigmoid,
                               .scale = 2.5,
                               .balance_bias = true,
                               .num_shared_experts = 2});
    const Array x = normal(Key(1), {3, 8, embed.size});
    const Array scores = sigmoid(matmul(x, moe.router));
    const auto expected = [&](const std::vector<float>& bias) {
      Array out = std::get<GatedMlp>(*moe.shared)(x);
      const Array biased = scores + array(bias, {4}), least = slice_in_dim(top_k(biased, 2).values, 1, 2, 2);
      const Array chosen = where(biased >= least, scores, 0.0), weights = 2.5 * chosen / sum(chosen, {-1}, true);
      for (int64_t e = 0; e < 4; ++e) {
        const auto kernel = [&](const Param& all) { return index_in_dim(all.value, e, 0, false); };
        const Array answer = matmul(silu(matmul(x, kernel(*moe.gate))) * matmul(x, kernel(moe.up)), kernel(moe.down));
        out = out + index_in_dim(weights, e, 2, true) * answer;
      }
      return out;
    };
    expect_near(moe(x).out, expected({0, 0, 0, 0}), 1e-5, "without a bias");
    moe.bias->value = array<float>({-1, 1, 0, 0.5}, {4});
    expect_near(moe(x).out, expected({-1, 1, 0, 0.5}), 1e-5, "with a bias");
  }
}

TEST(MoeMlp, RebalancingEvensTheLoad) {
  const MeshRules mesh_rules{
      make_mesh({{"data", 2}, {"expert", 2}}),
      {{"batch", "data"}, {"experts", "expert"}, {"embed", replicated}, {"hidden", replicated}, {"seq", replicated}}};
  MoeMlp moe = filter_shard(MoeMlp::init(Key(0), embed, hidden, {"experts", 4},
                                         {.capacity_factor = {}, .score = RouterScore::sigmoid, .balance_bias = true}),
                            mesh_rules);
  const Array x = device_put(normal(Key(1), {8, 32, embed.size}) + 1, NamedSharding(mesh_rules.mesh(), P{"data"}));
  const auto spread = [&] {
    const std::vector<float> choices = gather(moe(x).choices).to_host<float>();
    return *std::max_element(choices.begin(), choices.end()) - *std::min_element(choices.begin(), choices.end());
  };
  const float before = spread();
  for (int step = 0; step < 60; ++step) moe.rebalance(moe(x).choices, 0.01);
  EXPECT_GT(before, 0.1);
  EXPECT_LT(spread(), 0.05);
  EXPECT_EQ(moe.bias->value.sharding().spec(), PartitionSpec());
}

TEST(MoeMlp, ExpertsAreDrawnEachAsAKernel) {
  const MoeMlp moe = MoeMlp::init(Key(0), {"embed", 100}, {"hidden", 200}, {"experts", 4});
  EXPECT_TRUE(moe.up.value.is_lazy());
  EXPECT_NEAR(std(moe.up).item<float>(), 0.1, 0.002);
  EXPECT_EQ(moe.up.axes, (Axes{"experts", "embed", "hidden"}));
  EXPECT_EQ(moe.capacity(64), 40);
}

TEST(Lora, BeginsAsTheLayerAndIsMerged) {
  const Linear linear = Linear::init(Key(0), embed, hidden);
  Linear changed = with_lora(Key(1), linear, {.rank = 2, .alpha = 4});
  const Array x = normal(Key(2), {3, 8});
  expect_near(changed(x), linear(x), 0, "at first");
  EXPECT_EQ(testing::paths_of(leaves(changed)), (std::vector<std::string>{"kernel", "bias", "lora.a", "lora.b"}));
  changed.lora->b.value = normal(Key(3), {2, 16});
  const Array change = 2.0 * matmul(matmul(x, changed.lora->a), changed.lora->b);
  expect_near(changed(x), linear(x) + change, 1e-5, "with a change");
  const Linear merged = merge_lora(changed);
  EXPECT_FALSE(merged.lora);
  expect_near(merged(x), changed(x), 1e-5, "merged");
}

TEST(Lora, OnlyTheChangeLearns) {
  const Linear changed = with_lora(Key(1), Linear::init(Key(0), embed, hidden), {.rank = 2});
  const auto loss = [](const Linear& layer) { return sum(layer(ones({3, 8}))); };
  const auto [value, gradient] = value_and_grad(loss)(changed);
  EXPECT_EQ(max(abs(gradient.kernel)).item<float>(), 0);
  EXPECT_EQ(max(abs(*gradient.bias)).item<float>(), 0);
  EXPECT_GT(max(abs(gradient.lora->b)).item<float>(), 0);
}

// With a filter for the trained arrays, all others have no gradient, and an optimizer has no state for them.
TEST(Lora, AFilterLeavesTheRestOut) {
  const Linear changed = with_lora(Key(1), Linear::init(Key(0), embed, hidden), {.rank = 2});
  const auto loss = [](const Linear& layer) { return sum(layer(ones({3, 8}))); };
  const auto [value, gradient] = value_and_grad(loss, by_path("lora.**"))(changed);
  EXPECT_TRUE(gradient.kernel.value.is_absent());
  EXPECT_FALSE(gradient.lora->b.value.is_absent());
}

TEST(Lora, IsShardedLikeThePlacedKernel) {
  const MeshRules mesh_rules(make_mesh({{"model", 2}}), {{"embed", replicated}, {"hidden", "model"}});
  const Linear changed = with_lora(Key(1), filter_shard(Linear::init(Key(0), embed, hidden), mesh_rules), {.rank = 2});
  EXPECT_EQ(changed.lora->a.value.type_string(), "float32[8,2]");
  EXPECT_EQ(changed.lora->b.value.type_string(), "float32[2,16@model]");
  EXPECT_EQ(changed.lora->b.value.path(), "kernel.lora.b");
}

TEST(LoadWeights, APlacedLayerStaysPlaced) {
  const MeshRules mesh_rules(make_mesh({{"model", 2}}), {{"embed", replicated}, {"heads", "model"}});
  const SafetensorsFile& file = testing::stored_layers();
  MultiheadAttention layer = filter_shard(MultiheadAttention::init(Key(0), {"embed", 6}, {"heads", 6}, 2), mesh_rules);
  load_weights(layer, file, "pytorch.attention.weights", Library::pytorch);
  EXPECT_EQ(layer.q.kernel.value.type_string(), "float32[6,6@model]");
  const Array x = file.array("pytorch.attention.x");
  expect_near(layer(x), file.array("pytorch.attention.y"), 3e-6, "value");
}

TEST(Attention, DropoutOfHalfPrecisionGivesNumbers) {
  const auto half = cast(
      MultiheadAttention::init(Key(0), {"embed", 4}, {"heads", 4}, 2, {.causal = false, .dropout = 1e-9}), float16);
  const Array x = astype(200 * normal(Key(3), {2, 5, 4}), float16);
  for (const Array& mask : {Array(), zeros({5, 5}, boolean)}) {
    const Array trained = half(x, {.mask = mask, .key = Key(0)}), asked = inference_mode(half)(x, {.mask = mask});
    EXPECT_EQ(trained.dtype(), float16);
    EXPECT_LT(max(abs(astype(trained, float32) - astype(asked, float32))).item<float>(),
              0.01 * max(abs(astype(asked, float32))).item<float>());
  }
}

TEST(MoeMlp, AnyLargeFactorDropsNothing) {
  for (double factor : {100.0, 1e30, std::numeric_limits<double>::infinity()})
    EXPECT_EQ(MoeMlp::init(Key(0), {"embed", 4}, {"hidden", 6}, {"experts", 2}, {.top_k = 1, .capacity_factor = factor})
                  .capacity(64),
              64);
}

}  // namespace
}  // namespace tessera::nn::state_test
