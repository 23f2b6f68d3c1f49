// Checks every layer under every sharding of its parameters and input: value, gradient and statistics do not change.
#include "tests/nn/layers/law.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <regex>
#include <set>

#include "nn/layers/activation.h"
#include "nn/layers/attention.h"
#include "nn/layers/batch_norm.h"
#include "nn/layers/conv.h"
#include "nn/layers/embedding.h"
#include "nn/layers/latent_attention.h"
#include "nn/layers/linear.h"
#include "nn/layers/mlp.h"
#include "nn/layers/moe.h"
#include "nn/layers/norm.h"
#include "nn/layers/pool.h"
#include "nn/layers/recurrent.h"
#include "nn/layers/sequential.h"
#include "nn/layers/transformer.h"
#include "nn/layers/weight_norm.h"

namespace tessera::nn::law_test {
namespace {

using namespace testing;

const auto over_time = [](auto& cell, const Array& xs) { return scan(cell, xs).second; };

const Axis embed{"embed", 8}, hidden{"hidden", 8}, heads{"heads", 16};
const Shape shape{4, 4, 8};
const Axes stream{"batch", "seq", "embed"};
const std::vector<std::string> of_stream{"batch", "embed", "hidden"};

template <class Layer>
void expect_of_stream(const Layer& layer, const std::vector<std::string>& names = {"batch", "seq", "embed"}) {
  expect_itself(layer, shape, stream, names, plainly);
}
template <class Layer>
void expect_of_images(const Layer& layer, const std::vector<std::string>& names = {"batch", "height", "embed"}) {
  expect_itself(layer, {4, 8, 4, 8}, {"batch", "height", none, "embed"}, names, plainly);
}

struct Lookup {
  Embedding embedding;
  Array operator()(const Array& x) const {  // looks up the ranks of x (argsort), and multiplies by x
    return embedding(argsort(x)) * expand_dims(x, {2}) + embedding.attend(embedding(argsort(x)));
  }
};

void expect_attention(const AttentionOptions& options, const std::vector<std::string>& names,
                      const std::function<Array(const MultiheadAttention&, const Array&)>& call) {
  expect_itself(MultiheadAttention::init(Key(0), embed, heads, 4, options), shape, stream, names, call);
}

void attention_row() {
  const Array mask = logical_not(tri(4, {.dtype = boolean})), bias = normal(Key(4), {4, 1, 4, 4}, float64);
  expect_attention({.kv_features = Axis{"kv_heads", 8}, .rope = RotaryEmbedding{.base = 100}},
                   {"batch", "heads", "kv_heads"}, plainly);
  expect_attention({.causal = false}, {"batch", "seq", "heads"},
                   [&](const auto& layer, const Array& x) { return layer(x, {.mask = mask, .bias = bias}); });
  expect_attention({.dropout = 0.25}, {"batch", "seq", "heads"},
                   [](const auto& layer, const Array& x) { return layer(x, {.key = Key(3)}); });
  expect_attention({.causal = false}, {"batch", "embed", "heads"},
                   [](const auto& layer, const Array& x) { return layer(x, {.context = flip(x, {1})}); });
  expect_attention(
      {.kv_features = Axis{"kv_heads", 8}, .qk_norm = 1e-5, .qk_norm_all_heads = true, .chunk = 3, .sinks = true},
      {"batch", "heads", "kv_heads"}, plainly);
  expect_attention({.rope = RotaryEmbedding{.interleaved = true},
                    .qk_norm_after_rope = 1e-5,
                    .temperature = QueryTemperature{.floor_scale = 2},
                    .chunk = 3},
                   {"batch", "seq", "heads"}, plainly);
  // A mesh axis may shard a head.
  expect_itself(MultiheadAttention::init(Key(0), embed, heads, 1), shape, stream, {"heads"}, plainly);
}

void conv_row() {
  expect_of_images(Conv::init(Key(0), embed, hidden, {3, 2}, {.strides = {2, 1}}), {"batch", "height", "embed"});
  expect_of_images(Conv::init(Key(0), embed, hidden, {3, 2}, {.padding = "VALID"}), of_stream);
  expect_of_images(Conv::init(Key(0), embed, hidden, {2, 2}, {.groups = 4}), {"batch", "embed", "hidden"});
}

void moe_row() {
  const auto with_balance = [](const MoeMlp& layer, const Array& x) {
    const MoeResult result = layer(x);
    return result.out + result.balance_loss + result.dropped;
  };
  for (const bool gated : {false, true})
    for (const std::optional<double> capacity : {std::optional(0.75), std::optional<double>()})
      expect_itself(MoeMlp::init(Key(0), embed, hidden, {"experts", 4}, {.capacity_factor = capacity, .gated = gated}),
                    shape, stream, {"batch", "experts", gated ? "hidden" : "embed"}, with_balance);
  MoeMlp moe =
      MoeMlp::init(Key(0), embed, hidden, {"experts", 4},
                   {.capacity_factor = {}, .gated = true, .score = RouterScore::sigmoid, .num_shared_experts = 2});
  moe.bias = Buffer{normal(Key(1), {4}), {none}};
  expect_itself(moe, shape, stream, {"batch", "experts", "hidden"}, with_balance);
  for (const bool scaled : {false, true})
    expect_itself(MoeMlp::init(Key(0), embed, hidden, {"experts", 4},
                               {.capacity_factor = scaled ? std::optional(0.75) : std::nullopt,
                                .gated = true,
                                .router_bias = true,
                                .expert_bias = true,
                                .clamped_gate = ClampedGate{.limit = 0.5},
                                .num_groups = 2,
                                .scale_inputs = scaled}),
                  shape, stream, {"batch", "experts", "embed"}, with_balance);
}

void latent_attention_row() {
  const LatentAttentionOptions options{
      .q_lora_rank = 4, .kv_lora_rank = 6, .qk_nope_head_dim = 4, .qk_rope_head_dim = 2, .v_head_dim = 3};
  expect_of_stream(LatentAttention::init(Key(0), embed, "heads", 4, options), {"batch", "seq", "heads"});
}

void decoder_row() {
  const auto block = DecoderBlock::init(Key(0), embed, heads, 4, hidden, {.dropout = 0.1, .context = embed});
  expect_itself(block, shape, stream, {"batch", "embed", "heads"},
                [](const DecoderBlock& layer, const Array& x) { return layer(x, {.context = sin(x), .key = Key(3)}); });
}

void linear_row() {
  expect_of_stream(Linear::init(Key(0), embed, hidden), of_stream);
  expect_of_stream(with_lora(Key(1), Linear::init(Key(0), embed, hidden), {.rank = 2}), of_stream);
}

void batch_norm_row() {
  BatchNorm norm = BatchNorm::init(embed);
  expect_of_stream(norm);
  norm.inference = true;
  expect_of_stream(norm);
}

void sequential_row() {
  const auto layers = sequential(Linear::init(Key(0), embed, hidden), BatchNorm::init(hidden),
                                 Activation{Activation::silu}, Dropout{.rate = 0.5});
  expect_itself(layers, shape, stream, of_stream, [](auto& layer, const Array& x) { return layer(x, Key(3)); });
}

const std::map<std::string, std::function<void()>> rows = {
    {"Activation", [] { expect_of_stream(Activation{Activation::gelu_exact}); }},
    {"AdaptiveAvgPool",
     [] {
       expect_of_images(AdaptiveAvgPool{{3, 2}});
     }},
    {"AdaptiveMaxPool",
     [] {
       expect_of_images(AdaptiveMaxPool{{2, 3}});
     }},
    {"AvgPool",
     [] {
       expect_of_images(AvgPool{.window = {2, 2}, .strides = {2, 1}, .padding = {"SAME"}});
     }},
    {"BatchNorm", batch_norm_row},
    {"Conv", conv_row},
    {"ConvTranspose",
     [] {
       expect_of_images(ConvTranspose::init(Key(0), embed, hidden, {3, 2}, {.strides = {2, 1}}), of_stream);
     }},
    {"DecoderBlock", decoder_row},
    {"DeepMlp",
     [] {
       expect_of_stream(DeepMlp::init(Key(0), embed, hidden, {"out", 4}, 2), of_stream);
     }},
    {"Dropout",
     [] {
       expect_itself(Dropout{.rate = 0.5}, shape, stream, {"batch", "seq", "embed"},
                     [](const Dropout& layer, const Array& x) { return layer(x, Key(3)); });
     }},
    {"Embedding",
     [] {
       expect_itself(Lookup{Embedding::init(Key(0), {"vocab", 8}, embed)}, {4, 8}, {"batch", "seq"},
                     {"batch", "vocab", "embed"}, plainly);
     }},
    {"EncoderBlock",
     [] {
       expect_of_stream(EncoderBlock::init(Key(0), embed, heads, 4, hidden), {"batch", "embed", "heads"});
     }},
    {"GRUCell", [] { expect_itself(GRUCell::init(Key(0), embed, hidden), shape, stream, of_stream, over_time); }},
    {"GatedMlp", [] { expect_of_stream(GatedMlp::init(Key(0), embed, hidden), of_stream); }},
    {"GroupNorm", [] { expect_of_images(GroupNorm::init(embed, 4)); }},
    {"Identity", [] { expect_of_stream(Identity{}); }},
    {"LSTMCell", [] { expect_itself(LSTMCell::init(Key(0), embed, hidden), shape, stream, of_stream, over_time); }},
    {"LatentAttention", latent_attention_row},
    {"LayerNorm", [] { expect_of_stream(LayerNorm::init(embed)); }},
    {"Linear", linear_row},
    {"MaxPool",
     [] {
       expect_of_images(MaxPool{.window = {3, 2}, .strides = {2, 2}});
     }},
    {"Mlp", [] { expect_of_stream(Mlp::init(Key(0), embed, hidden), of_stream); }},
    {"MoeMlp", moe_row},
    {"MultiheadAttention", attention_row},
    {"PReLU", [] { expect_of_stream(PReLU::init(embed)); }},
    {"RMSNorm", [] { expect_of_stream(RMSNorm::init(embed)); }},
    {"RotaryEmbedding",
     [] {
       expect_itself(RotaryEmbedding{}, {4, 4, 4, 6}, {"batch", "seq", "heads", none}, {"batch", "seq", "heads"},
                     plainly);
     }},
    {"Sequential", sequential_row},
    {"SpectralNorm",
     [] { expect_of_stream(SpectralNorm<Linear>::init(Key(1), Linear::init(Key(0), embed, hidden)), of_stream); }},
    {"WeightNorm", [] { expect_of_stream(WeightNorm<Linear>::init(Linear::init(Key(0), embed, hidden)), of_stream); }},
};

class LayersEverywhere : public ::testing::TestWithParam<std::string> {};

TEST_P(LayersEverywhere, IsItself) { rows.at(GetParam())(); }

std::vector<std::string> names_of_rows() {
  std::vector<std::string> names;
  for (const auto& [name, check] : rows) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Layers, LayersEverywhere, ::testing::ValuesIn(names_of_rows()),
                         [](const auto& info) { return info.param; });

// The structs in nn/layers that have a call operator.
std::set<std::string> layers_of_the_library() {
  std::set<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(TESSERA_LAYERS_DIR)) {
    if (file.path().extension() != ".h") continue;
    std::ifstream in(file.path());
    std::string current, line;
    for (std::smatch found; std::getline(in, line);) {
      if (std::regex_search(line, found, std::regex("^struct (\\w+) \\{"))) current = found[1];
      if (line.find(" operator()(") != std::string::npos && !current.empty()) names.insert(current);
    }
  }
  return names;
}

TEST(LayersEverywhere, EveryLayerHasARow) {
  const std::vector<std::string> names = names_of_rows();
  EXPECT_EQ(layers_of_the_library(), std::set<std::string>(names.begin(), names.end()));
}

}  // namespace
}  // namespace tessera::nn::law_test
