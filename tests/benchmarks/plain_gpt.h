// PlainGpt: the Gpt of examples/transformer.h and its training step, written in plain LibTorch for one device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tessera::benchmarks {

// chain(clip_by_global_norm(max_norm), adamw(...)) with weight decay of matrices only.
struct PlainAdamw {
  double learning_rate, b1, b2, eps, weight_decay, max_norm;
};

// The baseline: a hand-written program for one device, without sharding, trees or checks, with the same parameters and
// operations in the same order. Embedding plus learned positions; per block LayerNorm, separate q, k and v, causal
// scaled_dot_product_attention, LayerNorm, tanh-GELU MLP; a head without bias; mean cross-entropy; clipping by Optax's
// formula, in place; at::_fused_adamw_ once with decay and once without.
class PlainGpt {
 public:
  // `parameters`: values by their path in Gpt ("layers.0.attn.q.kernel"), float32. This model changes them: pass
  // copies.
  PlainGpt(std::map<std::string, at::Tensor> parameters, int64_t layers, int64_t heads, double eps,
           const PlainAdamw& adamw);

  // Runs one step on int64 (batch, seq) ids; returns the loss before it.
  double step(const at::Tensor& inputs, const at::Tensor& targets);

 private:
  struct Linear {
    at::Tensor kernel, bias;
    at::Tensor operator()(const at::Tensor& x) const;
  };
  struct LayerNorm {
    at::Tensor scale, bias;
    at::Tensor operator()(const at::Tensor& x, double eps) const;
  };
  struct Block {
    LayerNorm ln1;
    Linear q, k, v, o;
    LayerNorm ln2;
    Linear up, down;
  };
  // The arrays that one call of the fused kernel updates; they share one counter.
  struct Group {
    std::vector<at::Tensor> params, mu, nu, counts;
    at::Tensor count;
    double weight_decay = 0;
    void add(const at::Tensor& parameter);
    void update(const std::vector<at::Tensor>& grads, const PlainAdamw& adamw);
  };

  Linear linear(const std::map<std::string, at::Tensor>& parameters, const std::string& path) const;
  LayerNorm norm(const std::map<std::string, at::Tensor>& parameters, const std::string& path) const;
  at::Tensor attention(const Block& block, const at::Tensor& x) const;
  at::Tensor logits(const at::Tensor& ids) const;
  void update(std::vector<at::Tensor> grads);

  int64_t heads_;
  double eps_;
  PlainAdamw adamw_;
  at::Tensor tokens_, positions_, head_;
  LayerNorm final_ln_;
  std::vector<Block> blocks_;
  Group decayed_, others_;           // matrices; biases and scales
  std::vector<at::Tensor> weights_;  // weights of both groups, in this order
};

}  // namespace tessera::benchmarks
