// Ring attention: the sequence stays cut, and blocks of keys and values go round the devices that hold it.
#pragma once

#include "sharding/propagation/sharded_reduction.h"

namespace tessera::detail {

struct RingOptions {
  bool causal = false;
  int64_t window = 0;
  double scale = 1;
  double softcap = 0;
};

// For a call whose operands are query, key, value (batch, seq, heads, head_dim), all cut alike along the factor "t",
// and perhaps whole segment ids (batch, seq); each position sees itself. Each device computes what its queries read of
// the block that it has, passes the block on, and merges by the logits' log-sum-exp. (Liu, Zaharia and Abbeel, "Ring
// attention with blockwise transformers for near-infinite context", 2023.) No logits are kept: the backward pass goes
// round once more, the blocks' gradients with the blocks. A device holds seq / n of everything but the ids, and no more
// logits at a time than a few rows make.
// Of a causal sequence a device takes a piece of the beginning and the one as far from the end, so that all have the
// same work (as Brandon et al., "Striped attention", 2023, and Llama 3's training do); windows stop the round once no
// one sees more.
Across ring_attention(const Prepared& call, const CallSite& site, const RingOptions& options);

}  // namespace tessera::detail
