// The parts of a decoder: DecoderNorm, DecoderEmbedding and DecoderLayer.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

#include "nn/layers/attention.h"
#include "nn/layers/latent_attention.h"
#include "nn/layers/mlp.h"
#include "nn/layers/moe.h"
#include "nn/models/config.h"

namespace tessera::nn {

// Inputs of a decoder in addition to the token ids, for rows that hold several documents (data::pack).
struct TokenInputs {
  Array segment_ids = {};  // integers (batch, seq): a token attends to earlier tokens of its own segment
  Array positions = {};    // integers (batch, seq): position of each token in its document; default: 0, 1, 2...
  // In place of segment_ids: integers (batch, n), where segments begin within a row, as in DotProductAttentionOptions.
  // GPUs compute this faster.
  Array segment_starts = {};
};

// RMSNorm or LayerNorm (nn/layers/norm.h), by the config: (..., features) -> same. A LayerNorm may lack the bias.
struct DecoderNorm {
  Param scale;  // (norm)
  std::optional<Param> bias = {};
  NormKind kind = NormKind::rms;
  double eps = 1e-6, offset = 0;
  DTypePolicy dtypes = {};

  static DecoderNorm init(const DecoderConfig& config);
  Array operator()(const Array& x) const;
};

// Maps ids (batch, n) to (batch, n, embed): the rows of the tokens times a multiplier, plus the rows of their positions
// if the decoder learns them.
struct DecoderEmbedding {
  Param tokens;                         // (vocab, embed)
  std::optional<Param> positions = {};  // (positions, embed)
  int64_t vocab = 0;                    // as in Embedding
  int64_t position_offset = 0;          // as in DecoderConfig
  double multiplier = 1;
  DTypePolicy dtypes = {};

  static DecoderEmbedding init(const Key& key, const DecoderConfig& config);
  // Embeds ids (batch, n); the first has position `start`, or each has its own in `at` (batch, n).
  // Errors
  //   invalid_argument: more tokens than positions in the table
  //   shape_mismatch: positions of another shape than the ids
  Array operator()(const Array& ids, int64_t start = 0, const Array& at = {}) const;
};

// One layer of a decoder: (batch, seq, embed) -> (batch, seq, embed). Norms that are absent are left out. With
// r = residual_multiplier:
//   x = x + r attn_norm(attn(norm1(x))), x = x + r mlp_norm(mlp(norm2(x)))
//   is_parallel: x + r attn(norm1(x)) + r mlp(norm2(x)), or mlp(norm1(x)) if norm2 is absent
// Experts have no capacity limit.
// Touvron et al., "Llama 2" (2023); Riviere et al., "Gemma 2" (2024), with four norms; OLMo team, "2 OLMo 2 furious"
// (2024), with attn_norm and mlp_norm; Black et al., "GPT-NeoX-20B" (2022), parallel; Jiang et al., "Mixtral of
// experts" (2024).
struct DecoderLayer {
  std::optional<DecoderNorm> norm1 = {};
  std::variant<MultiheadAttention, LatentAttention> attn;
  std::optional<DecoderNorm> attn_norm = {};
  std::optional<DecoderNorm> norm2 = {};
  std::variant<GatedMlp, Mlp, MoeMlp> mlp;
  std::optional<DecoderNorm> mlp_norm = {};
  bool is_parallel = false;
  double residual_multiplier = 1;

  static DecoderLayer init(const Key& key, const DecoderConfig& config, int64_t layer);
  Array operator()(const Array& x, const TokenInputs& with) const { return routed(x, with).out; }
  // Returns the result of operator(), with the routing statistics if the layer has experts.
  MoeResult routed(const Array& x, const TokenInputs& with) const;
  // Returns the output for the positions after those in the cache, as MultiheadAttention::decode.
  Array decode(const Array& x, KeyValueCache& cache, const DecodeInputs& with) const;
};

}  // namespace tessera::nn
