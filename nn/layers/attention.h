// Multi-head attention with four linear layers of its own.
#pragma once

#include "nn/layers/linear.h"

namespace tessera::nn {

struct AttentionOptions {
  bool bias = true;
  bool causal = true;
  Initializer init = init::lecun_normal();         // of q, k and v
  Initializer output_init = init::lecun_normal();  // of o
};

// (batch, seq, embed) -> (batch, seq, embed). Vaswani et al., "Attention is all you need" (2017).
// The heads lie side by side in one dim, "heads" = number of heads x head_dim: sharded over a mesh axis that divides
// the number of heads, attention stays local; an axis that cuts through a head is gathered where the heads split.
struct MultiheadAttention {
  Linear q, k, v;  // embed -> heads
  Linear o;        // heads -> embed
  int64_t num_heads = 1;
  bool causal = true;

  static MultiheadAttention init(const Key& key, const Axis& embed, const Axis& heads, int64_t num_heads,
                                 const AttentionOptions& options = {});
  Array operator()(const Array& x) const;
};

}  // namespace tessera::nn
