// Attention: what each position of a query reads of the keys and values that it may see.
#pragma once

#include <optional>

#include "sharding/operations/operand.h"

namespace tessera {

// How a sequence that is cut over devices is attended.
enum class ContextParallelism {
  automatic,  // by what moves fewer bytes, forward and backward: exchange where heads divide, else ring, else gather
  exchange,   // the cut of the sequence is exchanged for one of heads, where they divide; else all is gathered
  gather,     // keys and values are gathered, queries and results stay cut
  ring,       // all stays cut, and blocks of keys and values go round (Liu et al., "Ring attention", 2023)
};

struct DotProductAttentionOptions {
  Array bias = {};      // added to the logits
  Array mask = {};      // booleans: keys at false are not seen
  bool causal = false;  // position t sees keys 0 to offset + t
  int64_t offset = 0;
  int64_t window = 0;  // position t sees itself and window - 1 keys before it (if not causal, behind it too); 0: all
  Array segment_ids = {};  // integers (batch, seq) of both sides: a position sees the keys of its own segment
  std::optional<double> scale = std::nullopt;  // of the logits, 1 / sqrt(head_dim) unless given
  double softcap = 0;  // c: logits become c tanh(logits / c), before bias and mask; 0: they stay
  ContextParallelism context = ContextParallelism::automatic;
};

// jax.nn.dot_product_attention: query (batch, seq, heads, head_dim), key and value (batch, keys, kv_heads, head_dim),
// heads a multiple of kv_heads (head h uses kv head h / (heads / kv_heads)) -> (batch, seq, heads, head_dim).
// softmax(scale query key^T + bias) value; bias and mask broadcast to (batch, heads, seq, keys). A position that sees
// no key gets the mean of all values. Windows are those of Mistral (Jiang et al., 2023), softcap that of Gemma 2
// (Riviere et al., 2024). It needs memory for all logits, and so does a bias of a wider type than the query's, which is
// added as it is (a float32 bias beside bfloat16). Batch and heads may be sharded; if heads are sharded over more
// devices than there are kv heads, each holds all kv heads. A sharded sequence stays so as `context` says; a ring takes
// query, key and value of one sequence, cut alike, from position 0 on, without bias and mask (invalid_argument).
Array dot_product_attention(Operand query, const Array& key, const Array& value,
                            const DotProductAttentionOptions& options = {});

}  // namespace tessera
