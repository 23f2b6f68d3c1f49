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
  // The same, with what its router chose.
  MoeResult routed(const Array& x, const TokenInputs& with) const;
  Array decode(const Array& x, KeyValueCache& cache, const DecodeInputs& with) const;
};

// The whole decoder. With config.router_aux_loss_coef its loss has that much of transformers' load_balancing_loss_func:
// num_local_experts * num_experts_per_tok * the sum over experts of (the fraction of all choices that fell on it) times
// (its mean probability), both over all layers and positions, whatever these weigh in the loss.
using Mixtral = Decoder<Embedding, MixtralBlock, RMSNorm>;
template <>
WeightedSum Mixtral::loss(const Array& ids, const Array& labels, const Array& weights, const TokenInputs& with) const;
extern template struct Decoder<Embedding, MixtralBlock, RMSNorm>;

}  // namespace tessera::nn
