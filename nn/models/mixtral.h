// Mixtral: Mistral with a mixture of experts instead of each MLP.
#pragma once

#include "nn/layers/moe.h"
#include "nn/models/decoder.h"

namespace tessera::nn {

// x = x + attn(norm1(x)), x = x + moe(norm2(x)); no expert refuses a token. Jiang et al., "Mixtral of experts" (2024).
struct MixtralBlock {
  RMSNorm norm1;
  MultiheadAttention attn;
  RMSNorm norm2;
  MoeMlp moe;

  static MixtralBlock init(const Key& key, const DecoderConfig& config, int64_t layer);
  Array operator()(const Array& x, const TokenInputs& with) const;
  Array decode(const Array& x, KeyValueCache& cache, const DecodeInputs& with) const;
};

// The whole decoder.
using Mixtral = Decoder<Embedding, MixtralBlock, RMSNorm>;
extern template struct Decoder<Embedding, MixtralBlock, RMSNorm>;

}  // namespace tessera::nn
