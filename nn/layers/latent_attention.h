// LatentAttention: attention whose keys and values are made from a compressed vector of each position.
#pragma once

#include <cstdint>
#include <optional>

#include "nn/layers/attention.h"

namespace tessera::nn {

// The sizes have the names and, by default, the values of DeepSeek-V3's config.json.
struct LatentAttentionOptions {
  std::optional<int64_t> q_lora_rank = std::nullopt;      // features of the compressed query; default: not compressed
  int64_t kv_lora_rank = 512;                             // features of the compressed keys and values
  int64_t qk_nope_head_dim = 128, qk_rope_head_dim = 64;  // features of a head of q and k, without and with positions
  int64_t v_head_dim = 128;
  bool bias = false;  // q_down, kv_down and o have a bias
  bool causal = true;
  RotaryEmbedding rope = {.interleaved = true};
  std::optional<double> scale = std::nullopt;  // of the logits; default: 1 / sqrt(features of a head of q)
  double norm_eps = 1e-6;
  ContextParallelism context_parallelism = ContextParallelism::automatic;
  Initializer init = init::lecun_normal();         // initializes all layers but o
  Initializer output_init = init::lecun_normal();  // initializes o
  DTypePolicy dtypes = {};
};

// Multi-head latent attention: (batch, seq, embed) -> (batch, seq, embed). DeepSeek-AI, "DeepSeek-V2" (2024), 2.1.
// kv_down compresses x to kv_lora_rank features, from which kv_up makes the keys and values of all heads, and to one
// rotated key that all heads share. The features of a head of q and k are those without positions, then the rotated
// ones.
// Heads are sharded as in MultiheadAttention. Compressed features are not sharded.
struct LatentAttention {
  std::optional<Linear> q_down;   // embed -> q_lora_rank
  std::optional<RMSNorm> q_norm;  // normalizes the compressed query
  Linear q;                       // embed or q_lora_rank -> heads: num_heads x (qk_nope_head_dim + qk_rope_head_dim)
  Linear kv_down;                 // embed -> kv_lora_rank + qk_rope_head_dim
  RMSNorm kv_norm;                // normalizes the compressed keys and values
  Linear kv_up;                   // kv_lora_rank -> heads: num_heads x (qk_nope_head_dim + v_head_dim)
  Linear o;                       // heads: num_heads x v_head_dim -> embed
  int64_t num_heads = 1, qk_nope_head_dim = 128, qk_rope_head_dim = 64;
  bool causal = true;
  RotaryEmbedding rope = {.interleaved = true};
  std::optional<double> scale = std::nullopt;
  ContextParallelism context_parallelism = ContextParallelism::automatic;

  // Makes the layers; `heads` names the dimension of all heads. Errors (invalid_argument): a size below 1, or a rope
  // that rotary_embedding rejects.
  static LatentAttention init(const Key& key, const Axis& embed, const AxisName& heads, int64_t num_heads,
                              const LatentAttentionOptions& options = {});
  // Returns the output for x. Errors: those of MultiheadAttention; invalid_argument for a context.
  Array operator()(Operand x, const AttentionInputs& with = {}) const;
  // Returns the output for the positions after those in the cache, as MultiheadAttention::decode. The cache's keys are
  // the compressed features and the rotated key (batch, length, 1, kv_lora_rank + qk_rope_head_dim); its values have no
  // features. A single position is attended to in compressed features: the keys and values of the heads are not made.
  Array decode(Operand x, KeyValueCache& cache, const DecodeInputs& with = {}) const;
};

}  // namespace tessera::nn
