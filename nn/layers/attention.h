// MultiheadAttention: multi-head attention with four linear layers of its own, whole texts at once or token by token.
#pragma once

#include <optional>

#include "nn/layers/dropout.h"
#include "nn/layers/key_value_cache.h"
#include "nn/layers/linear.h"
#include "nn/layers/norm.h"
#include "sharding/operations/neural/attention.h"
#include "sharding/operations/neural/rotary_embedding.h"

namespace tessera::nn {

// Rotary positions as a layer, for x (..., seq, heads, head_dim) whose first position is `offset`, or whose tokens have
// positions of their own, integers (..., seq). Fields, pairing of coordinates (halves, as in Llama and Equinox) and
// errors: tessera::rotary_embedding.
struct RotaryEmbedding {
  double base = 10000;
  int64_t dims = 0;
  RotaryScaling scaling = {};

  Array operator()(Operand x, int64_t offset = 0) const;
  Array operator()(Operand x, const Array& positions) const;
};

struct AttentionOptions {
  bool bias = true;                      // of q, k and v
  std::optional<bool> output_bias = {};  // of o; by default as `bias`
  bool causal = true;
  std::optional<Axis> kv_features = std::nullopt;  // what k and v give: their heads x head_dim; by default as q
  std::optional<RotaryEmbedding> rope = std::nullopt;
  std::optional<double> qk_norm =
      std::nullopt;    // eps of an RMSNorm of each head of q and k, before rope; by default none
  int64_t window = 0;  // as tessera::DotProductAttentionOptions, and scale and softcap
  std::optional<double> scale = std::nullopt;
  double softcap = 0;
  ContextParallelism context_parallelism = ContextParallelism::automatic;  // where devices hold parts of the sequence
  std::optional<Axis> context = std::nullopt;      // what k and v read; by default the same as q
  double dropout = 0;                              // of the attention weights
  Initializer init = init::lecun_normal();         // of q, k and v
  Initializer output_init = init::lecun_normal();  // of o
  DTypePolicy dtypes = {};
};

// Optional inputs of an attention call beside x.
struct AttentionInputs {
  Array context = {};                     // (batch, keys, context): what is attended to; by default x itself
  Array mask = {};                        // booleans; false hides a key
  Array bias = {};                        // added to the logits
  Array segment_ids = {};                 // integers (batch, seq): a position attends to its own segment
  Array positions = {};                   // integers (batch, seq) or (seq): of rotary positions; by default 0, 1, 2...
  std::optional<Key> key = std::nullopt;  // of dropout
};

// Optional inputs of `decode` beside x, for rows of different lengths.
struct DecodeInputs {
  Array mask = {};       // booleans that broadcast to (batch, heads, seq, keys); false hides a key
  Array positions = {};  // integers (batch, seq): of rotary positions; by default those behind the cache's
};

// (batch, seq, embed) -> (batch, seq, embed). Vaswani et al., "Attention is all you need" (2017).
// All heads share one dim, "heads" = number of heads x head_dim. If it is sharded over a mesh axis that divides the
// number of heads, attention stays local; shards that cut through a head are gathered where the dim is split into
// heads.
// With fewer kv heads, kv_features.size = num_kv_heads x head_dim, and head h attends to kv head
// h / (num_heads / num_kv_heads); one kv head is multi-query attention. Ainslie et al., "GQA: training generalized
// multi-query transformer models from multi-head checkpoints" (2023). qk_norm is that of Qwen 3: Henry et al.,
// "Query-key normalization for transformers" (2020), by RMSNorm. Mask and bias broadcast to (batch, heads, seq, keys),
// and apply in addition to `causal`. A call with a context (cross-attention) needs a layer that is not causal: make it
// with {.causal = false}.
//   attention(x)    attention(x, {.mask = mask, .key = key})    attention(x, {.context = encoded})
struct MultiheadAttention {
  Linear q;     // embed -> heads
  Linear k, v;  // embed (or context) -> kv_features
  Linear o;     // heads -> embed
  int64_t num_heads = 1, num_kv_heads = 1;
  bool causal = true;
  std::optional<RotaryEmbedding> rope = std::nullopt;
  Dropout dropout = {.rate = 0};
  std::optional<RMSNorm> q_norm = std::nullopt, k_norm = std::nullopt;  // over head_dim
  int64_t window = 0;
  std::optional<double> scale = std::nullopt;
  double softcap = 0;
  ContextParallelism context_parallelism = ContextParallelism::automatic;

  // Errors (invalid_argument): num_heads does not divide heads; kv_features does not hold whole heads; the number of kv
  // heads does not divide num_heads; a rope that rotary_embedding refuses; a window or softcap below 0; a dropout
  // outside [0, 1].
  static MultiheadAttention init(const Key& key, const Axis& embed, const Axis& heads, int64_t num_heads,
                                 const AttentionOptions& options = {});
  // Errors: x has other than three dims or another embed, a mask or bias does not broadcast, segment ids or positions
  // of another shape (shape_mismatch); a context for a layer that is causal or has rotary positions or with segment
  // ids, no context although k and v read another size, positions for a layer without rope, numbers of heads that do
  // not divide, no key although dropout needs one (invalid_argument); a mask that is not boolean (dtype_mismatch).
  Array operator()(Operand x, const AttentionInputs& with = {}) const;
  // The output for the positions that follow those in the cache; adds their keys and values to the cache. It is for
  // inference: without context, without dropout. After an error the cache is unchanged. Errors: a layer that is not
  // causal, whose results would depend on how the text is split into calls (invalid_argument); a cache of another layer
  // or batch (shape_mismatch).
  Array decode(Operand input, KeyValueCache& cache, const DecodeInputs& with = {}) const;
};

}  // namespace tessera::nn
