// Attention, and the rotary embedding of positions.
#pragma once

#include <optional>

#include "sharding/operations/operand.h"

namespace tessera {

// Rotary positions for x (..., seq, heads, head_dim): at position t, coordinates i and i + head_dim / 2 of every head
// are rotated by the angle (offset + t) base^(-2 i / head_dim), so that the product of a query and a key depends on
// their distance only. Any dim but head_dim may be sharded. Su et al., "RoFormer: enhanced transformer with rotary
// position embedding" (2021).
Array rotary_embedding(Operand x, int64_t offset = 0, double base = 10000);

struct AttentionOptions {
  Array bias = {};      // added to the logits
  Array mask = {};      // booleans: keys at false are not seen
  bool causal = false;  // position t sees keys 0 to offset + t
  int64_t offset = 0;
  std::optional<double> scale = std::nullopt;  // of the logits, 1 / sqrt(head_dim) unless given
};

// jax.nn.dot_product_attention: query (batch, seq, heads, head_dim), key and value (batch, keys, kv_heads, head_dim),
// heads a multiple of kv_heads (head h uses kv head h / (heads / kv_heads)) -> (batch, seq, heads, head_dim).
// softmax(scale query key^T + bias) value; bias and mask broadcast to (batch, heads, seq, keys). A position that sees
// no key gets the mean of all values. Batch and heads may be sharded; if heads are sharded over more devices than there
// are kv heads, each holds all kv heads. A sharded sequence is exchanged for sharded heads if they divide, else
// gathered.
Array dot_product_attention(Operand query, const Array& key, const Array& value, const AttentionOptions& options = {});

}  // namespace tessera
