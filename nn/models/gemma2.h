// Gemma 2: norms before and after each half of a block, capped logits, and a window in every other layer.
#pragma once

#include "nn/layers/mlp.h"
#include "nn/models/decoder.h"

namespace tessera::nn {

// x = x + attn_norm(attn(norm1(x))), x = x + mlp_norm(mlp(norm2(x))). Norms are scaled by 1 + scale, and the embedding
// by sqrt(embed). Riviere et al., "Gemma 2" (2024).
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

// The whole decoder.
using Gemma2 = Decoder<Embedding, Gemma2Block, RMSNorm>;
extern template struct Decoder<Embedding, Gemma2Block, RMSNorm>;

}  // namespace tessera::nn
