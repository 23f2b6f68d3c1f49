// Multi-head attention with four linear layers of its own, and what a decoder keeps of it.
#pragma once

#include <optional>

#include "nn/layers/linear.h"

namespace tessera::nn {

struct AttentionOptions {
  bool bias = true;
  bool causal = true;
  std::optional<Axis> kv_heads;                    // of k and v; without: as many heads as the queries have
  std::optional<double> rope_base;                 // of rotary positions (see rotary_embedding); without: none
  Initializer init = init::lecun_normal();         // of q, k and v
  Initializer output_init = init::lecun_normal();  // of o
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
// With fewer kv heads, kv_heads.size = number of kv heads x head_dim, head h attends to kv head h / (heads / kv_heads).
// Ainslie et al., "GQA: training generalized multi-query transformer models from multi-head checkpoints" (2023).
struct MultiheadAttention {
  Linear q;     // embed -> heads
  Linear k, v;  // embed -> kv_heads
  Linear o;     // heads -> embed
  int64_t num_heads = 1, num_kv_heads = 1;
  bool causal = true;
  std::optional<double> rope_base;

  // Errors (bad_argument): heads that num_heads does not divide, kv_heads that do not hold whole heads, a number of
  // heads that the number of kv heads does not divide, a rope_base that rotary_embedding refuses.
  static MultiheadAttention init(const Key& key, const Axis& embed, const Axis& heads, int64_t num_heads,
                                 const AttentionOptions& options = {});
  Array operator()(Operand x) const;
  // Of the positions that follow those in the cache, to which it adds theirs; after an error the cache is as it was.
  Array decode(Operand input, KeyValueCache& cache) const;
};

}  // namespace tessera::nn
