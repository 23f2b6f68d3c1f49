// Compares layers with Equinox, Flax and PyTorch: with weights loaded by name they compute the same results.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>

#include "nn/checkpoint/foreign_weights.h"
#include "nn/layers/moe.h"
#include "nn/layers/pool.h"
#include "nn/transformations/value_and_grad.h"
#include "sharding/operations.h"
#include "tests/nn/layers/stored_layers.h"
#include "tests/nn/support.h"

namespace tessera::nn::vectors_test {
namespace {

using testing::expect_near;

constexpr double tolerance = 3e-6;

Array stored(const std::string& name) { return testing::stored_layers().array(name); }

template <class Layer>
struct Applied {
  Layer layer;
  Array x;
};

// Returns the arrays of the layer for which the case stores weights; `with_buffers`: buffers, too.
template <class Layer>
Leaves parameters(Layer& layer, bool with_buffers) {
  Leaves all = leaves(layer);
  std::erase_if(all, [&](const Leaf& leaf) { return leaf.kind == Kind::buffer && !with_buffers; });
  return all;
}

const auto plainly = [](auto& layer, const Array& x) { return layer(x); };
const auto over_time = [](auto& cell, const Array& xs) { return scan(cell, xs).second; };

// Checks that the layer has the results and gradients of the library, with the weights and the input of the case
// "<library>.<case>". If `apart` is not empty, compares only the gradient of x.
template <class Layer, class Call>
void expect_stored(const std::string& name, Layer layer, const WeightMap& map, Call call,
                   const std::set<std::string>& apart = {}) {
  detail::load_weights(parameters(layer, testing::stored_layers().contains(name + ".weights.running_mean")),
                       testing::stored_layers(), name + ".weights", map);
  Layer gradients = layer;
  if (apart.empty()) detail::load_weights(parameters(gradients, false), testing::stored_layers(), name + ".grads", map);
  const auto loss = [&](Applied<Layer> m) {
    const Array y = call(m.layer, m.x);
    return std::pair(sum(y * stored(name + ".cotangent")), y);
  };
  const auto [value, got] = value_and_grad(loss)(Applied<Layer>{layer, stored(name + ".x")});
  expect_near(value.second, stored(name + ".y"), tolerance, "value");
  expect_near(got.x, stored(name + ".x_grad"), tolerance, "gradient of x");
  if (!apart.empty()) return;
  const Leaves a = leaves(got.layer), b = leaves(gradients);
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].kind != Kind::buffer) expect_near(*a[i].value, *b[i].value, tolerance, "gradient of " + a[i].path);
}

Library library_of(const std::string& name) {
  if (name.starts_with("equinox.")) return Library::equinox;
  return name.starts_with("flax.") ? Library::flax : Library::pytorch;
}

template <class Layer, class Call>
auto by_name(Layer layer, Call call) {
  return [=](const std::string& name) { expect_stored(name, layer, weight_map(layer, library_of(name)), call); };
}
template <class Layer>
auto by_name(Layer layer) {
  return by_name(layer, plainly);
}

// PyTorch adds two biases. Each has the gradient of our single bias, so the weight map does not apply to gradients.
template <class Cell>
auto with_two_biases(Cell cell) {
  return [=](const std::string& name) {
    expect_stored(name, cell, weight_map(cell, Library::pytorch), over_time, {"bias"});
  };
}

template <class Pool>
auto pool(Pool layer) {
  return [=](const std::string& name) { expect_stored(name, layer, {}, plainly); };
}

void expect_lookup(const std::string& name) {
  Embedding layer = Embedding::init(Key(0), {"vocab", 7}, {"embed", 4});
  load_weights(layer, testing::stored_layers(), name + ".weights", library_of(name));
  expect_near(layer(stored(name + ".x")), stored(name + ".y"), 0, "rows");
}

void expect_dropout(const std::string& name) {
  expect_near(Dropout{.rate = 0.25}(stored(name + ".x"), Key(3)), stored(name + ".y"), 1e-7, "what is left");
}

void expect_batch_norm(const std::string& name, BatchNorm layer) {
  const bool train = name.ends_with("train");
  layer.inference = !train;
  layer.mean.value = stored(name + ".mean");
  layer.variance.value = stored(name + ".var");
  expect_stored(name, layer, weight_map(layer, library_of(name)), plainly);
  layer(stored(name + ".x"));
  expect_near(layer.mean, stored(name + ".next_mean"), tolerance, "running mean");
  expect_near(layer.variance, stored(name + ".next_var"), tolerance, "running variance");
}

void expect_torch_batch_norm(const std::string& name) {
  BatchNorm layer = BatchNorm::init({"features", 5});
  layer.inference = name.ends_with("inference");
  expect_stored(name, layer, weight_map(layer, Library::pytorch), plainly);
}

void expect_spectral_norm(const std::string& name) {
  auto layer = SpectralNorm<Linear>::init(Key(0), Linear::init(Key(0), {"in", 5}, {"out", 7}));
  layer.power.in.value = stored(name + ".v");
  layer.power.out.value = stored(name + ".u");
  expect_stored(name, layer, weight_map(layer, Library::equinox), plainly);
}

void expect_moe(const std::string& name) {
  const auto as_is = [](const std::vector<Array>& t, const Shape&) { return t[0]; };
  const MoeMlp layer = MoeMlp::init(Key(0), {"embed", 4}, {"hidden", 5}, {"experts", 3}, {.capacity_factor = 0.75});
  const WeightMap map{{"router", {"router"}, as_is}, {"up", {"up"}, as_is}, {"down", {"down"}, as_is}};
  expect_stored(name, layer, map, [](const MoeMlp& moe, const Array& x) { return moe(x).out; });
  MoeMlp loaded = layer;
  load_weights(loaded, testing::stored_layers(), name + ".weights", map);
  const MoeResult result = loaded(stored(name + ".x"));
  expect_near(result.balance_loss, reshape(stored(name + ".balance_loss"), {}), tolerance, "balance loss");
  EXPECT_GT(result.dropped.item<float>(), 0);
}

const Axis in5{"in", 5}, in4{"in", 4}, in3{"in", 3}, in2{"in", 2}, out3{"out", 3}, out6{"out", 6}, out7{"out", 7};
const Axis hidden{"hidden", 4}, features{"features", 6};
using Pairs = std::vector<std::pair<int64_t, int64_t>>;

Conv conv(const Axis& in, const Axis& out, const std::vector<int64_t>& kernel, const ConvOptions& options = {}) {
  return Conv::init(Key(0), in, out, kernel, options);
}
ConvTranspose conv_transpose(const Axis& in, const Axis& out, const std::vector<int64_t>& kernel,
                             const ConvOptions& options = {}) {
  return ConvTranspose::init(Key(0), in, out, kernel, options);
}
MultiheadAttention attention(int64_t heads, const AttentionOptions& options = {}) {
  return MultiheadAttention::init(Key(0), {"embed", 6}, {"heads", heads}, 2, options);
}

// A function, not a global: it makes layers, and operations are not registered before main().
const std::map<std::string, std::function<void(const std::string&)>>& cases() {
  static const std::map<std::string, std::function<void(const std::string&)>> cases = {
    {"equinox.attention", by_name(attention(6))},
    {"equinox.conv1d", by_name(conv(in4, out6, {3}, {.strides = {2}, .padding = {{1, 1}}}))},
    {"equinox.conv2d", by_name(conv(in4, out6, {3, 3}, {.padding = {{1, 0}, {2, 1}}, .groups = 2}))},
    {"equinox.conv3d", by_name(conv(in2, out3, {2, 2, 2}, {.padding = "VALID", .dilation = {2, 2, 2}}))},
    {"equinox.conv_transpose1d",
     by_name(conv_transpose(in4, out6, {3}, {.strides = {2}, .padding = Pairs{{3 - 1 - 1, 3 - 1 - 1 + 1}}}))},
    {"equinox.conv_transpose2d",
     by_name(conv_transpose(in4, out6, {3, 3}, {.strides = {2, 2}, .padding = {{2, 2}, {2, 2}}, .groups = 2}))},
    {"equinox.cross_attention",
     [](const std::string& name) {
       const auto layer = attention(6, {.bias = false, .causal = false, .context = in3});
       const Array context = stored(name + ".context");
       expect_stored(name, layer, weight_map(layer, Library::equinox),
                     [&](const MultiheadAttention& m, const Array& x) { return m(x, {.context = context}); });
     }},
    {"equinox.dropout", expect_dropout},
    {"equinox.embedding", expect_lookup},
    {"equinox.group_norm", by_name(GroupNorm::init(features, 2))},
    {"equinox.gru", by_name(GRUCell::init(Key(0), in3, hidden), over_time)},
    {"equinox.layer_norm", by_name(LayerNorm::init(features))},
    {"equinox.linear", by_name(Linear::init(Key(0), in5, out7))},
    {"equinox.lstm", by_name(LSTMCell::init(Key(0), in3, hidden), over_time)},
    {"equinox.mlp", by_name(DeepMlp::init(Key(0), in4, {"hidden", 5}, out3, 2))},
    {"equinox.prelu", by_name(PReLU::init())},
    {"equinox.rms_norm", by_name(RMSNorm::init(features))},
    {"equinox.rotary", pool(RotaryEmbedding{.base = 100})},
    {"equinox.spectral_norm", expect_spectral_norm},
    {"equinox.weight_norm", by_name(WeightNorm<Linear>::init(Linear::init(Key(0), in5, out7)))},
    {"flax.attention", by_name(attention(8))},
    {"flax.batch_norm_inference",
     [](const std::string& name) { expect_batch_norm(name, BatchNorm::init({"features", 5}, {.momentum = 0.9})); }},
    {"flax.batch_norm_train",
     [](const std::string& name) { expect_batch_norm(name, BatchNorm::init({"features", 5}, {.momentum = 0.9})); }},
    {"flax.conv1d", by_name(conv(in4, out6, {3}, {.strides = {2}}))},
    {"flax.conv2d", by_name(conv(in4, out6, {3, 2}, {.padding = "VALID", .groups = 2}))},
    {"flax.conv3d", by_name(conv(in2, out3, {2, 2, 2}, {.dilation = {2, 2, 2}}))},
    {"flax.conv_transpose1d", by_name(conv_transpose(in4, out6, {3}, {.strides = {2}}))},
    {"flax.conv_transpose2d", by_name(conv_transpose(in4, out6, {2, 3}, {.strides = {3, 2}, .padding = "VALID"}))},
    {"flax.conv_transpose3d", by_name(conv_transpose(in2, out3, {2, 2, 2}, {.strides = {2, 1, 3}}))},
    {"flax.embedding", expect_lookup},
    {"flax.group_norm", by_name(GroupNorm::init(features, 2, 1e-6))},
    {"flax.gru", by_name(GRUCell::init(Key(0), in3, hidden), over_time)},
    {"flax.layer_norm", by_name(LayerNorm::init(features, 1e-6))},
    {"flax.linear", by_name(Linear::init(Key(0), in5, out7))},
    {"flax.lstm", by_name(LSTMCell::init(Key(0), in3, hidden), over_time)},
    {"flax.prelu", by_name(PReLU::init({.slope = 0.01}))},
    {"flax.rms_norm", by_name(RMSNorm::init(features, 1e-6))},
    {"jax.moe", expect_moe},
    {"pytorch.adaptive_avg_pool", pool(AdaptiveAvgPool{{3, 2}})},
    {"pytorch.adaptive_max_pool", pool(AdaptiveMaxPool{{3, 4}})},
    {"pytorch.attention", by_name(attention(6))},
    {"pytorch.avg_pool",
     pool(AvgPool{.window = {2, 3}, .strides = {2, 1}, .padding = {"", {{0, 0}, {1, 1}}}})},
    {"pytorch.batch_norm_inference", expect_torch_batch_norm},
    {"pytorch.batch_norm_train", expect_torch_batch_norm},
    {"pytorch.conv1d", by_name(conv(in4, out6, {3}, {.strides = {2}, .padding = {{1, 1}}}))},
    {"pytorch.conv2d",
     by_name(conv(in4, out6, {3, 2}, {.padding = "VALID", .dilation = {2, 1}, .groups = 2}))},
    {"pytorch.conv3d", by_name(conv(in2, out3, {2, 2, 2}, {.padding = "VALID"}))},
    {"pytorch.conv_transpose1d",
     by_name(conv_transpose(in4, out6, {3}, {.strides = {2}, .padding = Pairs{{3 - 1 - 1, 3 - 1 - 1 + 1}}}))},
    {"pytorch.conv_transpose2d",
     by_name(conv_transpose(in4, out6, {3, 2}, {.strides = {2, 3}, .padding = {{2, 2}, {1, 1}}, .groups = 2}))},
    {"pytorch.conv_transpose3d",
     by_name(conv_transpose(in2, out3, {2, 2, 2}, {.strides = {2, 2, 2}, .padding = {{1, 1}, {1, 1}, {1, 1}}}))},
    {"pytorch.embedding", expect_lookup},
    {"pytorch.group_norm", by_name(GroupNorm::init(features, 2))},
    {"pytorch.gru", with_two_biases(GRUCell::init(Key(0), in3, hidden))},
    {"pytorch.layer_norm", by_name(LayerNorm::init(features))},
    {"pytorch.linear", by_name(Linear::init(Key(0), in5, out7))},
    {"pytorch.lstm", with_two_biases(LSTMCell::init(Key(0), in3, hidden))},
    {"pytorch.max_pool",
     pool(MaxPool{.window = {2, 2, 3}, .strides = {2, 1, 1}, .padding = {"", {{0, 0}, {0, 0}, {1, 1}}}})},
    {"pytorch.prelu", by_name(PReLU::init(features))},
};
  return cases;
}

std::vector<std::string> names_of_cases() {
  std::vector<std::string> names;
  for (const auto& [name, check] : cases()) names.push_back(name);
  return names;
}

class LayersOfOtherLibraries : public ::testing::TestWithParam<std::string> {};

TEST_P(LayersOfOtherLibraries, ComputeTheSame) { cases().at(GetParam())(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Libraries, LayersOfOtherLibraries, ::testing::ValuesIn(names_of_cases()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

TEST(LayersOfOtherLibraries, EveryStoredCaseIsRun) {
  std::set<std::string> stored_cases;
  for (const std::string& name : testing::stored_layers().names())
    stored_cases.insert(name.substr(0, name.find('.', name.find('.') + 1)));
  const std::vector<std::string> names = names_of_cases();
  EXPECT_EQ(stored_cases, std::set<std::string>(names.begin(), names.end()));
}

}  // namespace
}  // namespace tessera::nn::vectors_test
