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

}  // namespace tessera::detail
