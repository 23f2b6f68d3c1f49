// Compares layers under every table of rules with plain LibTorch in float64: values and gradients.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>

#include "nn/layers/attention.h"
#include "nn/layers/embedding.h"
#include "nn/layers/mlp.h"
#include "nn/layers/norm.h"
#include "sharding/redistribution/device_put.h"
#include "tests/nn/layers/law.h"

namespace tessera::nn::layers_law_test {
namespace {

using namespace testing;

using Tensors = std::map<std::string, at::Tensor>;  // by path

// ---- the layers in plain LibTorch

at::Tensor linear(const Tensors& w, const std::string& path, const at::Tensor& x) {
  const at::Tensor y = at::matmul(x, w.at(path + ".kernel"));
  return w.contains(path + ".bias") ? y + w.at(path + ".bias") : y;
}

at::Tensor rms_norm(const Tensors& w) {
  const at::Tensor& x = w.at("x");
  return x / ((x * x).mean(-1, true) + 1e-5).sqrt() * w.at("layer.scale");
}

at::Tensor gated_mlp(const Tensors& w) {
  const at::Tensor gate = linear(w, "layer.gate", w.at("x"));
  return linear(w, "layer.down", gate * at::sigmoid(gate) * linear(w, "layer.up", w.at("x")));
}

at::Tensor rotated(const at::Tensor& x, double base) {
  const int64_t half = x.size(-1) / 2;
  const at::Tensor frequency = at::pow(base, -at::arange(half, at::kDouble) / half);
  const at::Tensor angle = at::arange(x.size(1), at::kDouble).view({-1, 1, 1}) * frequency;
  const at::Tensor a = x.narrow(-1, 0, half), b = x.narrow(-1, half, half);
  return at::cat({a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()}, -1);
}

at::Tensor attention(const Tensors& w, int64_t heads, int64_t kv_heads, double rope_base) {
  const at::Tensor& x = w.at("x");
  const auto in_heads = [&](const char* path, int64_t n) {
    return linear(w, path, x).reshape({x.size(0), x.size(1), n, -1});
  };
  const auto for_all = [&](const at::Tensor& t) { return t.repeat_interleave(heads / kv_heads, 2).transpose(1, 2); };
  const at::Tensor q = rotated(in_heads("layer.q", heads), rope_base).transpose(1, 2);
  const at::Tensor k = for_all(rotated(in_heads("layer.k", kv_heads), rope_base));
  const at::Tensor later = at::ones({x.size(1), x.size(1)}, at::kBool).triu(1);
  const at::Tensor scores = at::matmul(q, k.transpose(-2, -1)) / std::sqrt(double(q.size(-1)));
  const at::Tensor mixed =
      at::matmul(at::softmax(scores.masked_fill(later, -INFINITY), -1), for_all(in_heads("layer.v", kv_heads)));
  return linear(w, "layer.o", mixed.transpose(1, 2).reshape({x.size(0), x.size(1), -1}));
}

// ---- the law

// Checks that `f` equals `layer` applied to x, in plain LibTorch. x has this shape, and `axes` names its dimensions.
template <class Layer>
void expect_law(const Layer& layer, const Shape& shape, const Axes& axes, const std::vector<std::string>& names,
                const std::function<at::Tensor(const Tensors&)>& f) {
  const Places places{.mesh = {{"a", 2}, {"b", 3}},
                      .ways = {{"", replicated}, {"", "a"}, {"", "b"}, {"", {"a", "b"}}, {"", {"b", "a"}}},
                      .tolerance = 1e-12};
  const Applied<Layer> start = shaken(layer, shape, axes);
  Outcome<Layer> expected = compute(start, plainly);
  Tensors w;
  for (const Leaf& leaf : leaves(start)) w[leaf.path] = to_tensor(*leaf.value).clone().requires_grad_();
  const at::Tensor y = f(w);
  (y * at::arange(y.numel(), at::kDouble).view(y.sizes()).cos()).sum().backward();
  expected.value = from_tensor(y.detach());
  for (const Leaf& leaf : leaves(expected.gradient)) *leaf.value = from_tensor(w.at(leaf.path).grad().contiguous());
  EXPECT_EQ(differences(compute(start, plainly), expected, places.tolerance), "");
  expect_everywhere(start, expected, names, plainly, places);
}

const Axis embed{"embed", 6}, hidden{"hidden", 12};
const Shape shape{6, 6, 6};
const Axes stream{"batch", "seq", "embed"};

TEST(LayersLaw, RMSNorm) { expect_law(RMSNorm::init(embed), shape, stream, {"batch", "seq", "embed"}, rms_norm); }

TEST(LayersLaw, GatedMlp) {
  expect_law(GatedMlp::init(Key(0), embed, hidden), shape, stream, {"batch", "seq", "embed", "hidden"}, gated_mlp);
}

struct TiedHead {
  Embedding embed;
  Array operator()(const Array& x) const { return embed.attend(x); }
};

TEST(LayersLaw, TheEmbeddingAsAHead) {
  expect_law(TiedHead{Embedding::init(Key(0), {"vocab", 12}, embed)}, shape, stream, {"batch", "seq", "embed", "vocab"},
             [](const Tensors& w) { return at::matmul(w.at("x"), w.at("layer.embed.tokens").t()); });
}

// Six heads share `kv_heads` heads of keys and values.
void expect_attention(int64_t kv_heads, const std::vector<std::string>& names) {
  const auto layer =
      MultiheadAttention::init(Key(0), embed, {"heads", 36}, 6,
                               {.kv_features = Axis{"kv_heads", 6 * kv_heads}, .rope = RotaryEmbedding{.base = 100}});
  expect_law(layer, shape, stream, names, [=](const Tensors& w) { return attention(w, 6, kv_heads, 100.0); });
}

TEST(LayersLaw, AttentionWithKvHeadsShardedDifferently) {
  for (const int64_t kv_heads : {1, 2, 3, 6}) expect_attention(kv_heads, {"heads", "kv_heads", "seq"});
}

TEST(LayersLaw, AttentionWithAShardedStream) {
  for (const int64_t kv_heads : {2, 3}) expect_attention(kv_heads, {"heads", "kv_heads", "batch", "embed"});
}

}  // namespace
}  // namespace tessera::nn::layers_law_test
