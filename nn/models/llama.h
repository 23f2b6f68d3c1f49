// Llama and decoders derived from it: Mistral and Qwen, Gemma 2, and Mixtral with experts instead of MLPs.
#pragma once

#include "nn/layers/mlp.h"
#include "nn/layers/moe.h"
#include "nn/models/decoder.h"

namespace tessera::nn {

// Computes x = x + attn(norm1(x)), x = x + mlp(norm2(x)). Touvron et al., "Llama 2" (2023). Jiang et al., "Mistral 7B"
// (2023), adds windows; Qwen2 (2024) adds biases of q, k and v; Qwen3 (2025) adds norms of the heads of q and k.
struct LlamaBlock {
  RMSNorm norm1;
  MultiheadAttention attn;
  RMSNorm norm2;
  GatedMlp mlp;

  static LlamaBlock init(const Key& key, const DecoderConfig& config, int64_t layer);
  Array operator()(const Array& x, const TokenInputs& with) const;
  Array decode(const Array& x, KeyValueCache& cache, const DecodeInputs& with) const;
};

// Llama, Mistral or Qwen decoder.
using Llama = Decoder<Embedding, LlamaBlock, RMSNorm>;
extern template struct Decoder<Embedding, LlamaBlock, RMSNorm>;

// Computes x = x + attn_norm(attn(norm1(x))), x = x + mlp_norm(mlp(norm2(x))). Norms multiply by 1 + scale, and the
// embedding is multiplied by sqrt(embed). Riviere et al., "Gemma 2" (2024).
struct Gemma2Block {
  RMSNorm norm1;
  MultiheadAttention attn;
  RMSNorm attn_norm;
  RMSNorm norm2;
  GatedMlp mlp;
  RMSNorm mlp_norm;

  static Gemma2Block init(const Key& key, const DecoderConfig& config, int64_t layer);
  Array operator()(const Array& x, const TokenInputs& with) const;
  Array decode(const Array& x, KeyValueCache& cache, const DecodeInputs& with) const;
};

// Gemma 2 decoder.
using Gemma2 = Decoder<Embedding, Gemma2Block, RMSNorm>;
extern template struct Decoder<Embedding, Gemma2Block, RMSNorm>;

// Computes x = x + attn(norm1(x)), x = x + moe(norm2(x)); experts have no capacity limit. Jiang et al., "Mixtral of
// experts" (2024).
struct MixtralBlock {
  RMSNorm norm1;
  MultiheadAttention attn;
  RMSNorm norm2;
  MoeMlp moe;

  static MixtralBlock init(const Key& key, const DecoderConfig& config, int64_t layer);
  Array operator()(const Array& x, const TokenInputs& with) const;
  // Returns the result of operator() with the router's choices.
  MoeResult routed(const Array& x, const TokenInputs& with) const;
  Array decode(const Array& x, KeyValueCache& cache, const DecodeInputs& with) const;
};

// Mixtral decoder. With config.router_aux_loss_coef, its loss includes that multiple of transformers'
// load_balancing_loss_func: num_local_experts * num_experts_per_tok * the sum over experts of (its fraction of all
// choices) times (its mean probability). The fraction and the mean are over all layers and positions, regardless of the
// positions' weights in the loss.
using Mixtral = Decoder<Embedding, MixtralBlock, RMSNorm>;
template <>
WeightedSum Mixtral::loss(const Array& ids, const Array& labels, const Array& weights, const TokenInputs& with) const;
extern template struct Decoder<Embedding, MixtralBlock, RMSNorm>;

}  // namespace tessera::nn
