// The common parts of the decoders: inputs, cache, the stack of blocks with rotary positions, and default rules.
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

// Inputs of a decoder in addition to the token ids, for rows that hold several documents (data::pack).
struct TokenInputs {
  Array segment_ids = {};  // integers (batch, seq): a token attends to earlier tokens of its own segment
  Array positions = {};    // integers (batch, seq): position of each token in its document; default: 0, 1, 2...
  // In place of segment_ids: integers (batch, n), where segments begin within a row, as in DotProductAttentionOptions.
  // GPUs compute this faster.
  Array segment_starts = {};
};

// Holds the keys and values of the text so far, by layer. Initially empty: DecoderCache cache; model.decode(ids,
// cache);
struct DecoderCache {
  std::vector<KeyValueCache> layers;

  int64_t length() const { return layers.empty() ? 0 : layers.front().length(); }
};

// Returns mesh rules for the logical axes of the decoders: batch, stream_seq (the sequence dimension between the
// blocks), vocab, positions, embed, heads, kv_heads, head_dim, mlp, experts and norm.
//
// The rules of `own` come first. They are followed by rules for the other names, for these axes of the mesh:
//   data    shards the batch
//   fsdp    shards the batch, and matrices along embed
//   model   shards matrices along vocab, heads, kv_heads, experts and mlp
// If an axis does not divide the vocabulary, the vocabulary is padded (Uneven::pad). Another dimension that an axis
// does not divide is replicated. So {"data": 8} is data parallel, {"fsdp": 8} fully sharded, {"model": 8} tensor
// parallel, and meshes with two or three of these axes combine them.
Rules decoder_rules(const Mesh& mesh, Rules own = {});

// Decoder of one family. Gpt2, Llama, Gemma2 and Mixtral (nn/models) are Decoders with their own parts.
template <class Embed, class Block, class Norm>
struct Decoder {
  Embed embed;
  std::vector<Block> layers;
  Norm final_norm;
  std::optional<Linear> head;  // absent if the head shares the embedding
  DecoderConfig config;
  bool remat = false;  // true: the backward pass recomputes each block's activations

  // Makes a decoder. Weights are normal with standard deviation 0.02. Those that write to the residual stream are
  // divided by sqrt(2 layers), as in Radford et al., "Language models are unsupervised multitask learners" (GPT-2,
  // 2019). Error (invalid_argument): a config that `check` rejects.
  static Decoder init(const Key& key, const DecoderConfig& config);

  // Maps token ids (batch, seq) to the input of the head, (batch, seq, embed). Error (invalid_argument): an id outside
  // [0, config.vocab_size); `loss` has the same error for a label.
  Array hidden(const Array& ids, const TokenInputs& with = {}) const;
  // Maps the result of `hidden` to logits (batch, seq, config.vocab_size).
  Array logits(const Array& hidden) const;
  Array operator()(const Array& ids, const TokenInputs& with = {}) const { return logits(hidden(ids, with)); }
  // Returns the cross-entropy of labels (batch, seq) for the ids, weighted by `weights` (batch, seq) if given. The
  // result is a sum and a weight, which you can add up or divide. The complete logits are never stored
  // (nn/layers/embedding.h).
  WeightedSum loss(const Array& ids, const Array& labels, const Array& weights = {},
                   const TokenInputs& with = {}) const;
  // Maps the ids (batch, n) after those in the cache to their logits (batch, n, config.vocab_size), and appends the ids
  // to the cache. After an error the cache is unchanged.
  Array decode(const Array& ids, DecoderCache& cache, const DecodeInputs& with = {}) const;
};

}  // namespace tessera::nn
