// The layers on every table of rules: value and gradients are those of plain LibTorch in float64.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>

#include "nn/layers/attention.h"
#include "nn/layers/embedding.h"
#include "nn/layers/mlp.h"
#include "nn/layers/norm.h"
#include "nn/placement/filter_shard.h"
#include "nn/transformations/value_and_grad.h"
#include "sharding/operations.h"
#include "sharding/redistribution/device_put.h"

namespace tessera::nn {
namespace {

using Tensors = std::map<std::string, at::Tensor>;  // by path

// A layer and what it is applied to, which gets a gradient, too.
template <class Layer>
struct Applied {
  Layer layer;
  Param x;
};

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

// Every way to send these names to the axes a and b of the mesh.
std::vector<Rules> tables_over(const std::vector<std::string>& names) {
  const std::vector<Rule> ways = {{"", replicated}, {"", "a"}, {"", "b"}, {"", {"a", "b"}}, {"", {"b", "a"}}};
  std::vector<Rules> tables{{}};
  for (const std::string& name : names) {
    std::vector<Rules> longer;
    for (const Rules& table : tables)
      for (Rule rule : ways) {
        rule.logical = name;
        longer.push_back(table);
        longer.back().push_back(rule);
      }
    tables = std::move(longer);
  }
  return tables;
}

struct Expected {
  at::Tensor value;
  Tensors gradients;
};

template <class Tree>
Expected plain(const Tree& tree, const std::function<at::Tensor(const Tensors&)>& f, const at::Tensor& cotangent) {
  Tensors w;
  for (const Leaf& leaf : leaves(tree)) w[leaf.path] = to_tensor(*leaf.value).clone().requires_grad_();
  Expected expected{f(w), {}};
  (expected.value * cotangent).sum().backward();
  for (const auto& [path, t] : w) expected.gradients[path] = t.grad();
  return expected;
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>() / (1 + b.abs().max().item<double>());
}

at::Tensor random_values(const Shape& shape, uint64_t seed) {
  return at::randn(shape, at::detail::createCPUGenerator(seed), at::TensorOptions(at::kDouble));
}

// f is `layer` applied to x (shape, named by axes) in plain LibTorch.
template <class Layer>
void expect_law(const Layer& layer, const Shape& shape, const Axes& axes, const std::vector<std::string>& names,
                const std::function<at::Tensor(const Tensors&)>& f) {
  Applied<Layer> start{layer, {zeros(shape), axes}};
  uint64_t seed = 0;
  for (const Leaf& leaf : leaves(start)) *leaf.value = from_tensor(random_values(leaf.value->shape(), ++seed));
  Shape out = shape;
  out.back() = to_tensor(start.layer(start.x)).size(-1);
  const at::Tensor cotangent = random_values(out, 99);
  const Expected expected = plain(start, f, cotangent);
  const auto loss = [&](const Applied<Layer>& m) {
    const Array y = m.layer(m.x);
    return std::pair(sum(y * from_tensor(cotangent)), y);
  };
  int failures = 0;
  for (const bool private_replicas : {false, true}) {
    const Mesh mesh = make_mesh({{"a", 2}, {"b", 3}}, {.private_replicas = private_replicas});
    for (Rules rules : tables_over(names)) {
      for (const char* other : {"batch", "seq", "embed", "heads", "kv_heads"}) rules.push_back({other, replicated});
      if (failures > 3) return;
      const auto [value, grads] = value_and_grad(loss)(filter_shard(start, Layout(mesh, rules)));
      std::string wrong;
      if (const double e = difference(to_tensor(value.second), expected.value); !(e < 1e-12))
        wrong += fmt::format("value off by {}\n", e);
      for (const Leaf& leaf : leaves(grads))
        if (const double e = difference(to_tensor(*leaf.value), expected.gradients.at(leaf.path)); !(e < 1e-12))
          wrong += fmt::format("gradient of {} off by {}\n", leaf.path, e);
      if (wrong.empty()) continue;
      ++failures;
      ADD_FAILURE() << rules.to_string() << (private_replicas ? ", private replicas\n" : "\n") << wrong;
    }
  }
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

// Six heads that share these.
void expect_attention(int64_t kv_heads, const std::vector<std::string>& names) {
  const auto layer = MultiheadAttention::init(Key(0), embed, {"heads", 36}, 6,
                                              {.kv_heads = Axis{"kv_heads", 6 * kv_heads}, .rope_base = 100.0});
  expect_law(layer, shape, stream, names, [=](const Tensors& w) { return attention(w, 6, kv_heads, 100.0); });
}

TEST(LayersLaw, AttentionWithKvHeadsLyingApart) {
  for (const int64_t kv_heads : {1, 2, 3, 6}) expect_attention(kv_heads, {"heads", "kv_heads", "seq"});
}

TEST(LayersLaw, AttentionWithAShardedStream) {
  for (const int64_t kv_heads : {2, 3}) expect_attention(kv_heads, {"heads", "kv_heads", "batch", "embed"});
}

}  // namespace
}  // namespace tessera::nn
