// SequenceRing: which device has which tokens of a sequence, and how blocks of it go round.
#pragma once

#include <vector>

#include "sharding/propagation/sharded_reduction.h"

namespace tessera::detail {

// Consecutive tokens of the sequence, and where they are among a device's own.
struct Chunk {
  int64_t first, size, row;
};

// The devices that hold one sequence each, cut along the factor "t" of a call. Tensors are by slot; `back` says that
// they move in the backward pass.
class SequenceRing {
 public:
  SequenceRing(const Prepared& call, const CallSite& site, bool causal, int64_t window);

  // How often blocks are read: until no one sees more.
  int rounds() const { return rounds_; }
  // Of a slot's device along the sequence, and of the one whose block it has in this round.
  int number(size_t slot) const { return numbers_[slot]; }
  int owner(size_t slot, int round) const { return (numbers_[slot] - round + devices_) % devices_; }
  // The tokens that a device computes: its block, or, of a causal sequence, a piece of the beginning and the one as far
  // from the end.
  std::vector<Chunk> chunks_of(int device) const;

  // Every device's tensor to the one `by` further on.
  Tensors shifted(const Tensors& x, int by, bool back) const;
  // The same, by one, begun, and carried out while this process computes.
  Transfer begin_shift(const Tensors& x, bool back) const;
  // From blocks of the sequence, cut along dim 1, to the chunks of each device; and back.
  Tensors spread(const Tensors& x, bool back) const;
  Tensors collected(const Tensors& x, bool back) const;

 private:
  bool is_odd(size_t slot) const { return numbers_[slot] % 2 == 1; }
  std::vector<int> takers(int which) const;
  std::vector<int> senders(int by) const;

  ShardedReduction moves_;
  int64_t block_;
  int devices_, rounds_;
  std::vector<int> numbers_;  // by slot, along the sequence
  bool folds_;                // beginning and end of the sequence lie together
};

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
// For a causal sequence each device takes one piece from the beginning and the mirrored piece from the end, so that all
// have the same work (as in Brandon et al., "Striped attention", 2023, and in Llama 3's training). With windows the
// ring stops once no device attends to later blocks.
Across ring_attention(const Prepared& call, const CallSite& site, const RingOptions& options);

}  // namespace tessera::detail
