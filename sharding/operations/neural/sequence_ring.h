// SequenceRing: assigns the tokens of a sequence to devices, and passes blocks of it around the ring.
#pragma once

#include <vector>

#include "sharding/propagation/sharded_reduction.h"

namespace tessera::detail {

// Consecutive tokens of the sequence, and their first row in the device's own tensor.
struct Chunk {
  int64_t first, size, row;
};

// The devices that store one sequence, sharded along the factor "t" of a call. Tensors are indexed by slot. `back`: the
// communication is part of the backward pass.
class SequenceRing {
 public:
  SequenceRing(const Prepared& call, const CallSite& site, bool causal, int64_t window);

  // Returns how many blocks each device reads: fewer than all if a window ends earlier.
  int rounds() const { return rounds_; }
  // number returns the index of a slot's device along the sequence; owner the index of the device whose block it has in
  // this round.
  int number(size_t slot) const { return numbers_[slot]; }
  int owner(size_t slot, int round) const { return (numbers_[slot] - round + devices_) % devices_; }
  // Returns the tokens that a device computes: its block, or for a causal sequence one piece from the beginning and the
  // mirrored piece from the end.
  std::vector<Chunk> chunks_of(int device) const;

  // Sends every device's tensor to the device `by` positions further.
  Tensors shifted(const Tensors& x, int by, bool back) const;
  // Starts to send every device's tensor to the next device, which proceeds while this process computes.
  Transfer begin_shift(const Tensors& x, bool back) const;
  // spread converts blocks of the sequence, sharded along dimension 1, to the chunks of each device; collected converts
  // them back.
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
  bool folds_;                // true: each device has a piece of the beginning and one of the end
};

struct RingOptions {
  bool causal = false;
  int64_t window = 0, chunk = 0;
  double scale = 1;
  double softcap = 0;
};

// Computes attention around the ring. The call's operands are query, key and value (batch, seq, heads, head_dim), all
// sharded in the same way along the factor "t". Replicated segment ids (batch, seq) are optional. Each position sees
// itself. Each device attends its queries to the block that it has, passes the block on, and merges the results by the
// logits' log-sum-exp. (Liu, Zaharia and Abbeel, "Ring attention with blockwise transformers for near-infinite
// context", 2023.)
//
// No logits are kept: the backward pass goes around the ring again, with the blocks and their gradients. A device
// stores seq / n of everything but the ids, and at any time only the logits of a few rows. For a causal sequence each
// device takes one piece from the beginning and the mirrored piece from the end. Then all devices have the same work.
// (As in Brandon et al., "Striped attention", 2023, and in Llama 3's training.) With windows the ring stops once no
// device attends to later blocks.
Across ring_attention(const Prepared& call, const CallSite& site, const RingOptions& options);

}  // namespace tessera::detail
