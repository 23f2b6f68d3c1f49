// MultiheadAttention, RotaryEmbedding and KeyValueCache: attention over sequences, or by token with a cache.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "nn/layers/activation.h"
#include "nn/layers/linear.h"
#include "nn/layers/norm.h"
#include "sharding/operations/neural/attention.h"
#include "sharding/operations/neural/rotary_embedding.h"

namespace tessera::nn {

namespace detail {
struct CacheBuffers;
}

// Holds the keys and values of all positions so far, to which the next position attends. They are views of buffers with
// free positions at the end, so that most tokens are appended without a copy. Full buffers double their length. Copies
// of a cache are independent: two copies that continue one sequence do not see each other's tokens.
struct KeyValueCache {
  Array keys, values;  // (batch, length, kv_heads, head_dim); absent at first
  std::shared_ptr<detail::CacheBuffers> buffers = {};

  int64_t length() const { return keys.is_absent() ? 0 : keys.shape(1); }
  void append(const Array& new_keys, const Array& new_values);
};

// Applies rotary positions to x (..., seq, heads, head_dim). The first position is `offset`, or each token has its own
// position, given as integers (..., seq). See tessera::rotary_embedding for the fields, the errors and the pairing of
// coordinates (halves, as in Llama and Equinox, unless `interleaved`).
struct RotaryEmbedding {
  double base = 10000;
  int64_t dims = 0;
  RotaryScaling scaling = {};
  bool interleaved = false;

  Array operator()(Operand x, int64_t offset = 0) const;
  Array operator()(Operand x, const Array& positions) const;
};

// Scales queries by their position, for layers without rotary positions in long sequences: at position t by
// 1 + scale log(1 + floor((t + 1) / floor_scale)). Nakanishi, "Scalable-softmax is superior for attention" (2025); the
// names and defaults are Llama 4's (attn_scale).
struct QueryTemperature {
  double scale = 0.1;
  double floor_scale = 8192;
};

struct AttentionOptions {
  bool bias = true;                      // q, k and v have a bias
  std::optional<bool> output_bias = {};  // o has a bias; defaults to `bias`
  bool causal = true;
  std::optional<Axis> kv_features = std::nullopt;  // size of k and v: kv heads x head_dim; defaults to q's
  std::optional<RotaryEmbedding> rope = std::nullopt;
  // eps of an RMSNorm of each head of q and k, before rope; default: no norm
  std::optional<double> qk_norm = std::nullopt;
  bool qk_norm_all_heads = false;  // the RMSNorm is over the features of all heads together, as in OLMo 2
  // eps of a norm of each head of q and k without scale, after rope, as in Llama 4; default: no norm
  std::optional<double> qk_norm_after_rope = std::nullopt;
  std::optional<QueryTemperature> temperature = std::nullopt;
  int64_t window = 0, chunk = 0;  // window, chunk, scale and softcap as in tessera::DotProductAttentionOptions
  std::optional<double> scale = std::nullopt;
  double softcap = 0;
  bool sinks = false;  // trained sinks, as in tessera::DotProductAttentionOptions, initially zeros
  ContextParallelism context_parallelism = ContextParallelism::automatic;  // used if the sequence is sharded
  std::optional<Axis> context = std::nullopt;      // dimension that k and v read; defaults to q's
  double dropout = 0;                              // rate of dropout of the attention weights
  Initializer init = init::lecun_normal();         // initializes q, k and v
  Initializer output_init = init::lecun_normal();  // initializes o
  DTypePolicy dtypes = {};
};

// Optional inputs of an attention call in addition to x.
struct AttentionInputs {
  Array context = {};                     // (batch, keys, context): attended to instead of x
  Array mask = {};                        // booleans; false hides a key
  Array bias = {};                        // added to the logits
  Array segment_ids = {};                 // integers (batch, seq): a position attends to its own segment
  Array positions = {};                   // integers (batch, seq) or (seq): rotary positions; default: 0, 1, 2...
  std::optional<Key> key = std::nullopt;  // key of dropout
  Array segment_starts = {};              // in place of segment_ids: as in tessera::DotProductAttentionOptions
};

// Optional inputs of `decode` in addition to x, for rows of different lengths.
struct DecodeInputs {
  Array mask = {};       // booleans that broadcast to (batch, heads, seq, keys); false hides a key
  Array positions = {};  // integers (batch, seq): rotary positions; default: the positions after the cache's
};

// Attends with several heads: (batch, seq, embed) -> (batch, seq, embed). Vaswani et al., "Attention is all you need"
// (2017).
//   attention(x)    attention(x, {.mask = mask, .key = key})    attention(x, {.context = encoded})
// All heads share one dimension, "heads" = number of heads x head_dim. If it is sharded over a mesh axis that divides
// the number of heads, attention stays local. Shards that split a head are gathered before the dimension is split into
// heads.
// With fewer kv heads, kv_features.size = num_kv_heads x head_dim, and head h attends to kv head h / (num_heads /
// num_kv_heads). One kv head is multi-query attention. Ainslie et al., "GQA: training generalized multi-query
// transformer models from multi-head checkpoints" (2023).
// qk_norm applies RMSNorm to each head of q and k, as in Qwen 3. Henry et al., "Query-key normalization for
// transformers" (2020).
// Given positions, chunks are those of the positions: of each packed document, and in `decode` of each row without the
// padding before it.
// Mask and bias broadcast to (batch, heads, seq, keys), and apply in addition to `causal`. A call with a context
// (cross-attention) needs a layer that is not causal: make it with {.causal = false}.
struct MultiheadAttention {
  Linear q;     // embed -> heads
  Linear k, v;  // embed (or context) -> kv_features
  Linear o;     // heads -> embed
  int64_t num_heads = 1, num_kv_heads = 1;
  bool causal = true;
  std::optional<RotaryEmbedding> rope = std::nullopt;
  Dropout dropout = {.rate = 0};
  std::optional<RMSNorm> q_norm = std::nullopt, k_norm = std::nullopt;  // over head_dim, or over all features
  std::optional<double> qk_norm_after_rope = std::nullopt;
  std::optional<QueryTemperature> temperature = std::nullopt;
  int64_t window = 0, chunk = 0;
  std::optional<double> scale = std::nullopt;
  double softcap = 0;
  std::optional<Param> sinks = std::nullopt;  // (num_heads)
  ContextParallelism context_parallelism = ContextParallelism::automatic;

  // Makes the four linear layers.
  // Errors (invalid_argument)
  //   num_heads does not divide heads
  //   kv_features is not a multiple of head_dim, or the number of kv heads does not divide num_heads
  //   a rope that rotary_embedding rejects
  //   a window, chunk or softcap below 0
  //   a dropout outside [0, 1]
  static MultiheadAttention init(const Key& key, const Axis& embed, const Axis& heads, int64_t num_heads,
                                 const AttentionOptions& options = {});
  // Returns the output for x.
  // Errors
  //   shape_mismatch: x does not have three dimensions, or has the wrong embed; a mask or bias that does not broadcast;
  //     segment ids or positions of the wrong shape
  //   invalid_argument: a context for a layer that is causal, has rotary positions or gets segment ids; no context
  //     although k and v read a different size; positions for a layer without rope and temperature; kv heads whose
  //     number does not divide the number of heads; no key although dropout needs one
  //   dtype_mismatch: a mask that is not boolean
  Array operator()(Operand x, const AttentionInputs& with = {}) const;
  // Returns the output for the positions after those in the cache, and appends their keys and values to it. It is for
  // inference: no context, no dropout. After an error the cache is unchanged.
  // Errors
  //   invalid_argument: a layer that is not causal, because the result would depend on how the text is split into calls
  //   shape_mismatch: a cache of another layer or batch
  Array decode(Operand input, KeyValueCache& cache, const DecodeInputs& with = {}) const;
};

}  // namespace tessera::nn
