// Multi-head attention with four linear layers of its own, and what a decoder keeps of it.
#pragma once

#include <optional>

#include "nn/layers/dropout.h"
#include "nn/layers/linear.h"
#include "sharding/operations/attention.h"

namespace tessera::nn {

struct AttentionOptions {
  bool bias = true;
  bool causal = true;
  std::optional<Axis> kv_heads = std::nullopt;     // of k and v; without: as many heads as the queries have
  std::optional<double> rope_base = std::nullopt;  // of rotary positions (see RotaryEmbedding); without: none
  std::optional<Axis> context = std::nullopt;      // what k and v read; without: the same as the queries
  double dropout = 0;                              // of the attention weights
  Initializer init = init::lecun_normal();         // of q, k and v
  Initializer output_init = init::lecun_normal();  // of o
  DTypePolicy dtypes = {};
};

// What a call of attention may take beside x. All may be absent.
struct AttentionInputs {
  Array context = {};                     // (batch, keys, context): what is attended to; without: x itself
  Array mask = {};                        // booleans, false takes a key out of sight
  Array bias = {};                        // added to the logits
  std::optional<Key> key = std::nullopt;  // of dropout
};

// Rotary positions as a layer: x (..., seq, heads, head_dim), the first position being `offset`. Su et al. (2021); see
// tessera::rotary_embedding for the pairing of coordinates (halves, as Llama and Equinox have it) and errors.
struct RotaryEmbedding {
  double base = 10000;
  Array operator()(Operand x, int64_t offset = 0) const { return rotary_embedding(x, offset, base); }
};

// The keys and values of a text's positions so far: what the next position attends to.
struct KeyValueCache {
  Array keys, values;  // (batch, length, kv_heads, head_dim); absent at first

  int64_t length() const { return keys.is_absent() ? 0 : keys.shape(1); }
  void append(const Array& new_keys, const Array& new_values);
};

// (batch, seq, embed) -> (batch, seq, embed). Vaswani et al., "Attention is all you need" (2017).
// The heads lie side by side in one dim, "heads" = number of heads x head_dim: sharded over a mesh axis that divides
// the number of heads, attention stays local; an axis that cuts through a head is gathered where the heads split.
// With fewer kv heads, kv_heads.size = number of kv heads x head_dim, head h attends to kv head h / (heads / kv_heads);
// one kv head is multi-query attention. Ainslie et al., "GQA: training generalized multi-query transformer models from
// multi-head checkpoints" (2023).
// Mask and bias broadcast to (batch, heads, seq, keys), and hold together with `causal`. A call with a context
// (cross-attention) is never causal: make the layer with {.causal = false}.
//   attention(x)    attention(x, {.mask = mask, .key = key})    attention(x, {.context = encoded})
struct MultiheadAttention {
  Linear q;     // embed -> heads
  Linear k, v;  // embed (or context) -> kv_heads
  Linear o;     // heads -> embed
  int64_t num_heads = 1, num_kv_heads = 1;
  bool causal = true;
  std::optional<double> rope_base = std::nullopt;
  Dropout dropout = {.rate = 0};

  // Errors (bad_argument): heads that num_heads does not divide, kv_heads that do not hold whole heads, a number of
  // heads that the number of kv heads does not divide, a rope_base that rotary_embedding refuses.
  static MultiheadAttention init(const Key& key, const Axis& embed, const Axis& heads, int64_t num_heads,
                                 const AttentionOptions& options = {});
  // Errors: other than three dims, another embed, a mask or bias that does not broadcast (shape_mismatch); a context
  // where the layer is causal or rotates positions, none where k and v read another size, numbers of heads that do not
  // divide, no key where dropout needs one (bad_argument); a mask that is not boolean (dtype_mismatch).
  Array operator()(Operand x, const AttentionInputs& with = {}) const;
  // Of the positions that follow those in the cache, to which it adds theirs; after an error the cache is as it was.
  // A context is none of its inputs, nor is a key: it is for inference, without dropout. Errors: a layer that is not
  // causal (bad_argument), whose results would depend on how the text is cut; a cache of another layer or batch
  // (shape_mismatch).
  Array decode(Operand input, KeyValueCache& cache) const;
};

}  // namespace tessera::nn
