// Compares attention and expert layers with transformers: results, gradients and tokens decoded one by one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "nn/layers/latent_attention.h"
#include "nn/layers/moe.h"
#include "sharding/files/safetensors.h"
#include "tests/nn/layers/law.h"
#include "tests/nn/support.h"

namespace tessera::nn::transformers_vectors_test {
namespace {

using testing::Applied;
using testing::expect_near;

constexpr double tolerance = 5e-6;  // of float32

const SafetensorsFile& file() {
  static const auto opened =
      SafetensorsFile::open(std::string(TESSERA_REFERENCE_DIR) + "/layers_transformers.safetensors");
  return opened;
}
Array stored(const std::string& name) { return file().array(name); }

const Axis embed{"embed", 12}, heads{"heads", 24};

// Replaces the arrays of a layer by all those of the case; each has the same shape.
template <class Layer>
Layer loaded(Layer layer, const std::string& prefix) {
  int64_t unused = std::count_if(file().names().begin(), file().names().end(),
                                 [&](const std::string& name) { return name.starts_with(prefix); });
  for (const Leaf& leaf : leaves(layer)) {
    if (leaf.kind == Kind::buffer && prefix.ends_with("grads.")) continue;
    const Array value = stored(prefix + leaf.path);
    EXPECT_EQ(value.shape(), leaf.value->shape()) << leaf.path;
    *leaf.value = value, --unused;
  }
  EXPECT_EQ(unused, 0) << prefix;
  return layer;
}

template <class Layer>
Array call(const Layer& layer, const Array& x) {
  if constexpr (std::is_same_v<Layer, MoeMlp>)
    return layer(x).out;
  else
    return layer(x);
}

// Checks value and gradients on one device and under every sharding of these names.
template <class Layer>
void expect_stored(const std::string& name, const Layer& made, const std::vector<std::string>& names) {
  const Applied<Layer> start{loaded(made, name + ".weights."), {stored(name + ".x"), {"batch", "seq", "embed"}}};
  Applied<Layer> gradient{loaded(made, name + ".grads."), {stored(name + ".x_grad"), {"batch", "seq", "embed"}}};
  const auto check = [&](const Applied<Layer>& at) {
    const auto loss = [&](Applied<Layer> m) {
      const Array y = call(m.layer, m.x);
      return std::pair(sum(y * stored(name + ".cotangent")), y);
    };
    const auto [value, got] = value_and_grad(loss)(at);
    expect_near(value.second, stored(name + ".y"), tolerance, "value");
    const Leaves a = leaves(got), b = leaves(gradient);
    for (size_t i = 0; i < a.size(); ++i)
      if (a[i].kind != Kind::buffer) expect_near(*a[i].value, *b[i].value, tolerance, "gradient of " + a[i].path);
  };
  check(start);
  for (const Mesh mesh : tessera::testing::shared_and_private({{"a", 2}, {"b", 2}}))
    for (const Rules& rules : testing::tables_over(names, leaves(start), {{"", replicated}, {"", "a"}, {"", "b"}}))
      check(filter_shard(start, MeshRules(mesh, rules)));
}

// Checks that tokens decoded in parts, the last ones one by one, give the complete result, also in a row that begins
// after padding.
template <class Layer>
void expect_decoded(const Layer& layer, const Array& x) {
  const Array whole = layer(x);
  KeyValueCache cache, padded;
  const Array shorter = concatenate({ones({2, 2, x.shape(2)}), x}, 1);
  const Array mask = reshape(arange(2 + x.shape(1)) >= 2, {1, 1, 1, 2 + x.shape(1)});
  for (int64_t from = 0; from < x.shape(1);) {
    const int64_t to = from < 3 ? from + 3 : from + 1, skipped = from ? 2 : 0;
    const Array expected = slice_in_dim(whole, from, to, 1);
    expect_near(layer.decode(slice_in_dim(x, from, to, 1), cache), expected, tolerance, "decoded");
    const Array positions = broadcast_to(maximum(arange(from + skipped - 2, to), 0), {2, to - from + 2 - skipped});
    const Array got = layer.decode(slice_in_dim(shorter, from + skipped, to + 2, 1), padded,
                                   {.mask = slice_in_dim(mask, 0, to + 2, 3), .positions = positions});
    expect_near(slice_in_dim(got, 2 - skipped, got.shape(1), 1), expected, tolerance, "decoded after padding");
    from = to;
  }
}

void expect_attention(const std::string& name, AttentionOptions options) {
  options.kv_features = Axis{"kv_heads", 12};
  auto layer = MultiheadAttention::init(Key(0), embed, heads, 4, options);
  expect_stored(name, layer, {"batch", "seq", "heads"});
  layer = loaded(layer, name + ".weights.");
  const Array x = stored(name + ".x");
  expect_decoded(layer, x);
  const Array expected = layer(x);
  if (layer.rope || layer.temperature)
    expect_near(layer(x, {.positions = arange(x.shape(1))}), expected, tolerance, "with positions");
  layer.dropout.rate = 1e-12;  // drops nothing, but takes the path that drops
  expect_near(layer(x, {.key = Key(0)}), expected, tolerance, "with dropout");
}

void expect_latent_attention(const std::string& name, LatentAttentionOptions options) {
  options.kv_lora_rank = 8, options.qk_nope_head_dim = 6, options.qk_rope_head_dim = 4, options.v_head_dim = 5;
  auto layer = LatentAttention::init(Key(0), embed, "heads", 4, options);
  expect_stored(name, layer, {"batch", "seq", "heads"});
  layer = loaded(layer, name + ".weights.");
  expect_decoded(layer, stored(name + ".x"));
  layer.kv_up = with_lora(Key(1), layer.kv_up, {.rank = 2});
  layer.kv_up.lora->b.value = normal(Key(2), layer.kv_up.lora->b.value.shape());
  expect_decoded(layer, stored(name + ".x"));
}

void expect_experts(const std::string& name, int64_t experts, MoeOptions options) {
  options.gated = true;
  for (const std::optional<double> capacity : {std::optional<double>(), std::optional(100.0)}) {
    options.capacity_factor = capacity;
    const auto layer = MoeMlp::init(Key(0), embed, {"hidden", 10}, {"experts", experts}, options);
    expect_stored(name, layer, {"batch", "experts", "hidden"});
  }
}

// Transformers' attention scale of yarn with mscale_all_dim, and the factor of cosines with both.
double mscale(double by) { return 0.1 * by * std::log(8.0) + 1; }

const RotaryEmbedding rope{.base = 100}, pairs{.base = 100, .interleaved = true};

TEST(TransformersLayers, GptOss) {
  expect_attention("gpt_oss.window", {.rope = rope, .window = 3, .sinks = true});
  expect_attention("gpt_oss.attention", {.rope = rope, .sinks = true});
  expect_experts("gpt_oss.experts", 4,
                 {.top_k = 2, .router_bias = true, .expert_bias = true, .clamped_gate = ClampedGate{.limit = 1.5}});
}

TEST(TransformersLayers, Olmo2) {
  expect_attention("olmo2.attention", {.bias = false, .rope = rope, .qk_norm = 1e-5, .qk_norm_all_heads = true});
}

TEST(TransformersLayers, Llama4) {
  expect_attention("llama4.chunk", {.bias = false, .rope = pairs, .qk_norm_after_rope = 1e-5, .chunk = 3});
  expect_attention("llama4.temperature",
                   {.bias = false, .temperature = QueryTemperature{.scale = 0.3, .floor_scale = 2}});
  expect_experts("llama4.experts", 4,
                 {.top_k = 1, .score = RouterScore::sigmoid, .scale_inputs = true, .num_shared_experts = 1});
}

TEST(TransformersLayers, DeepseekV3) {
  RotaryEmbedding yarn = pairs;
  yarn.scaling = {.kind = RotaryScaling::yarn,
                  .factor = 8,
                  .original_positions = 16,
                  .beta_fast = 4,
                  .attention_factor = mscale(0.7) / mscale(1.2)};
  expect_latent_attention(
      "deepseek_v3.attention",
      {.q_lora_rank = 5, .bias = true, .rope = yarn, .scale = std::pow(mscale(1.2), 2) / std::sqrt(10)});
  expect_latent_attention("deepseek_v3.plain_query", {.rope = rope});
  expect_experts("deepseek_v3.experts", 8,
                 {.top_k = 3,
                  .score = RouterScore::sigmoid,
                  .scale = 2.5,
                  .balance_bias = true,
                  .num_groups = 4,
                  .top_k_groups = 2,
                  .num_shared_experts = 2});
}

}  // namespace
}  // namespace tessera::nn::transformers_vectors_test
