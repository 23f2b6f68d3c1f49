// What the decoders share: their inputs, their cache, the stack of blocks with rotary positions, and default rules.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "nn/layers/attention.h"
#include "nn/layers/embedding.h"
#include "nn/layers/linear.h"
#include "nn/layers/norm.h"
#include "nn/models/config.h"
#include "sharding/operations/linalg/linear_algebra.h"
#include "sharding/placement/mesh.h"
#include "sharding/placement/mesh_rules.h"

namespace tessera::nn {

// Inputs of a decoder beside the token ids, for rows that hold several documents (data::pack).
struct TokenInputs {
  Array segment_ids = {};  // integers (batch, seq): a token sees those before it in its own segment
  Array positions = {};    // integers (batch, seq): of each token in its document; by default 0, 1, 2...
};

// The keys and values of the text so far, by layer. It starts empty: DecoderCache cache; model.decode(ids, cache);
struct DecoderCache {
  std::vector<KeyValueCache> layers;

  int64_t length() const { return layers.empty() ? 0 : layers.front().length(); }
};

// The logical axes of the decoders: batch, stream_seq (the sequence dim between the blocks), vocab, positions, embed,
// heads, kv_heads, head_dim, mlp, experts and norm.
//
// `own`, and behind them rules for the other names by the axes that the mesh has: the batch lies on "data" and "fsdp",
// matrices are sharded over "fsdp" along embed, and over "model" along vocab, heads, kv_heads, experts and mlp. If an
// axis does not divide the vocabulary, it is padded (Uneven::pad); other dims are replicated then. So {"data": 8}
// is data parallel, {"fsdp": 8} fully sharded, {"model": 8} tensor parallel, and meshes of two or three of them are
// their products.
Rules decoder_rules(const Mesh& mesh, Rules own = {});

// A decoder of one family; Gpt2, Llama, Gemma2 and Mixtral (nn/models) are this with parts of their own.
template <class Embed, class Block, class Norm>
struct Decoder {
  Embed embed;
  std::vector<Block> layers;
  Norm final_norm;
  std::optional<Linear> head;  // without one the embedding is the head
  DecoderConfig config;
  bool remat = false;  // the backward pass computes each block's activations again

  // Weights start normal with a standard deviation of 0.02, those that write to the residual stream divided by
  // sqrt(2 layers), as in Radford et al., "Language models are unsupervised multitask learners" (GPT-2, 2019). Error
  // (invalid_argument): a config that `check` refuses.
  static Decoder init(const Key& key, const DecoderConfig& config);

  // Token ids (batch, seq) -> what the head reads, (batch, seq, embed). Error (invalid_argument): an id outside
  // [0, config.vocab_size), as a label of the loss is one.
  Array hidden(const Array& ids, const TokenInputs& with = {}) const;
  // The result of `hidden` -> logits (batch, seq, config.vocab_size).
  Array logits(const Array& hidden) const;
  Array operator()(const Array& ids, const TokenInputs& with = {}) const { return logits(hidden(ids, with)); }
  // The cross-entropy of labels (batch, seq) that follow the ids, weighted by `weights` (batch, seq) if given, to be
  // divided or added up. The logits never exist whole (nn/layers/head_cross_entropy.h).
  WeightedSum loss(const Array& ids, const Array& labels, const Array& weights = {},
                   const TokenInputs& with = {}) const;
  // The ids (batch, n) that follow those in the cache -> their logits (batch, n, config.vocab_size). The ids are added
  // to the cache; after an error the cache is unchanged.
  Array decode(const Array& ids, DecoderCache& cache, const DecodeInputs& with = {}) const;
};

}  // namespace tessera::nn
