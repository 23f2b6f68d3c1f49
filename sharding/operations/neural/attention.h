// Dot-product attention, with masks, windows, chunks, softcap, sinks and context parallelism.
#pragma once

#include <optional>

#include "sharding/operations/operand.h"

namespace tessera {

// How attention is computed over a sequence that is sharded over devices.
enum class ContextParallelism {
  automatic,  // the mode with the fewest bytes, forward and backward: exchange if heads divide, else ring, else gather
  exchange,   // an all_to_all shards heads instead of the sequence, if divisible; else all is gathered
  gather,     // keys and values are gathered, queries and results stay sharded
  ring,       // all stay sharded, and blocks of keys and values are passed on (Liu et al., "Ring attention", 2023)
};

struct DotProductAttentionOptions {
  Array bias = {};      // added to the logits
  Array mask = {};      // booleans: keys at false are not seen
  bool causal = false;  // position t sees keys 0 to offset + t
  int64_t offset = 0;
  int64_t window = 0;      // position t sees itself and window - 1 keys before it (if not causal, after it too); 0: all
  int64_t chunk = 0;       // position t sees keys of its own chunk only: chunk floor(t / chunk) of the sequence; 0: all
  Array segment_ids = {};  // integers (batch, seq), for queries and keys: a position sees the keys of its own segment
  // In place of segment_ids: integers (batch, n), where segments begin within a row, in increasing order. Unused ones
  // are seq. GPUs then compute half precision by flash attention without a mask (Dao, "FlashAttention-2", 2023).
  Array segment_starts = {};
  std::optional<double> scale = std::nullopt;  // scale of the logits; default: 1 / sqrt(head_dim)
  double softcap = 0;  // c: logits become c tanh(logits / c), before bias and mask; 0: unchanged
  Array sinks = {};    // (heads): a logit of each head that every position sees, with a value of zeros
  ContextParallelism context = ContextParallelism::automatic;
};

// Computes jax.nn.dot_product_attention: softmax(scale query key^T + bias) value.
//   query       (batch, seq, heads, head_dim)
//   key, value  (batch, keys, kv_heads, head_dim); heads is a multiple of kv_heads, and head h uses kv head
//               h / (heads / kv_heads)
//   bias, mask  broadcast to (batch, heads, seq, keys)
//   result      (batch, seq, heads, head_dim); a position that sees no key gets the mean of all values
// `window` works as in Mistral (Jiang et al., 2023), `softcap` as in Gemma 2 (Riviere et al., 2024), `chunk` as in
// Llama 4 (2025), `sinks` as in gpt-oss (OpenAI, 2025): a position that sees no key then gets zeros. Softcap and sinks
// need memory for all logits. A bias of a wider type than the query's (float32 for bfloat16) also does: it is added
// without a cast.
//
// Batch and heads may be sharded. If heads are sharded over more devices than there are kv heads, each device holds all
// kv heads. `context` specifies how a sharded sequence is computed. A ring takes query, key and value of one sequence,
// sharded in the same way, from position 0 on, without bias, mask and sinks; else Error (invalid_argument).
//
// Error (shape_mismatch): sinks that are not one number for each head.
// Errors (invalid_argument)
//   segment_starts that are not between 0 and seq; on an accelerator, at the next read of a value
//   segment_starts in another order, on a CPU; not reported on an accelerator
Array dot_product_attention(Operand query, const Array& key, const Array& value,
                            const DotProductAttentionOptions& options = {});

namespace detail {

// Throws the errors of dot_product_attention for segments of other shapes or element types.
void check_segments(const Array& query, const Array& key, const Array& ids, const Array& starts, int64_t offset);
// Returns the segment ids (batch, seq) of segment starts (batch, n), which are checked.
Array segment_ids_of(Operand starts, int64_t seq);

}  // namespace detail

}  // namespace tessera
