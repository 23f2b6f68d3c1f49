// Llama, and with it Mistral and Qwen: no positions but rotations, RMSNorm, gated MLPs, fewer kv heads than heads.
#pragma once

#include "nn/layers/mlp.h"
#include "nn/models/decoder.h"

namespace tessera::nn {

// x = x + attn(norm1(x)), x = x + mlp(norm2(x)). Touvron et al., "Llama 2" (2023); Jiang et al., "Mistral 7B" (2023):
// windows; Qwen2 (2024): biases of q, k and v; Qwen3 (2025): norms of the heads of q and k.
struct LlamaBlock {
  RMSNorm norm1;
  MultiheadAttention attn;
  RMSNorm norm2;
  GatedMlp mlp;

  static LlamaBlock init(const Key& key, const DecoderConfig& config, int64_t layer);
  Array operator()(const Array& x, const TokenInputs& with) const;
  Array decode(const Array& x, KeyValueCache& cache, const DecodeInputs& with) const;
};

// The whole decoder.
using Llama = Decoder<Embedding, LlamaBlock, RMSNorm>;
extern template struct Decoder<Embedding, LlamaBlock, RMSNorm>;

}  // namespace tessera::nn
