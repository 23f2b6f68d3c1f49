// GPT-2: learned positions, LayerNorm, biases, and a head that shares the embedding.
#pragma once

#include "nn/layers/mlp.h"
#include "nn/layers/norm.h"
#include "nn/models/decoder.h"

namespace tessera::nn {

struct Gpt2Embedding {
  Param tokens;       // (vocab, embed)
  Param positions;    // (positions, embed)
  int64_t vocab = 0;  // as in Embedding

  // Embeds ids (batch, n); the first has position `start`, or each has its own in `positions` (batch, n).
  // Error (invalid_argument): more tokens than positions in the table.
  Array operator()(const Array& ids, int64_t start = 0, const Array& positions = {}) const;
};

// Computes x = x + attn(ln1(x)), x = x + mlp(ln2(x)).
struct Gpt2Block {
  LayerNorm ln1;
  MultiheadAttention attn;
  LayerNorm ln2;
  Mlp mlp;

  static Gpt2Block init(const Key& key, const DecoderConfig& config, int64_t layer);
  Array operator()(const Array& x, const TokenInputs& with) const;
  Array decode(const Array& x, KeyValueCache& cache, const DecodeInputs& with) const;
};

// GPT-2 decoder. Radford et al., "Language models are unsupervised multitask learners" (2019).
using Gpt2 = Decoder<Gpt2Embedding, Gpt2Block, LayerNorm>;
extern template struct Decoder<Gpt2Embedding, Gpt2Block, LayerNorm>;

}  // namespace tessera::nn
