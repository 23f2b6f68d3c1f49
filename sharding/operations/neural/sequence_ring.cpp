// Distributes halves of blocks from both ends of a sequence, and passes blocks around the ring.
#include "sharding/operations/neural/sequence_ring.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

namespace tessera::detail {
namespace {

at::Tensor half_of(const at::Tensor& t, int i) { return t.narrow(1, i * (t.size(1) / 2), t.size(1) / 2).contiguous(); }

std::vector<int> inverse(const std::vector<int>& to) {
  std::vector<int> from(to.size());
  for (size_t i = 0; i < to.size(); ++i) from[to[i]] = static_cast<int>(i);
  return from;
}

}  // namespace

SequenceRing::SequenceRing(const Prepared& call, const CallSite& site, bool causal, int64_t window) {
  static const Text reason =
      lasting_text("keys and values are passed around the ring of devices that hold the sequence");
  const Plan& plan = *call.plan;
  const auto& place = *std::find_if(plan.factors.begin(), plan.factors.end(),
                                    [](const Plan::FactorPlace& factor) { return factor.name == "t"; });
  const Type* keys = plan.operands[1].plain;
  moves_ = sharded_reduction_over(plan.mesh, plan.reduced_inside, plan.slots, keys, keys,
                                  {site.operation.name, site.where, reason, {}}, place.axes);
  block_ = place.local;
  devices_ = static_cast<int>(place.size / block_);
  for (const int64_t offset : place.offset) numbers_.push_back(static_cast<int>(offset / block_));
  folds_ = causal && !window && block_ % 2 == 0;
  rounds_ =
      causal && window ? static_cast<int>(std::min<int64_t>(devices_, 1 + (window + block_ - 2) / block_)) : devices_;
}

std::vector<Chunk> SequenceRing::chunks_of(int device) const {
  if (!folds_) return {{device * block_, block_, 0}};
  const int64_t half = block_ / 2;
  return {{device * half, half, 0}, {(2 * devices_ - 1 - device) * half, half, half}};
}

std::vector<int> SequenceRing::senders(int by) const {
  std::vector<int> out;
  for (int i = 0; i < devices_; ++i) out.push_back((i - by + devices_) % devices_);
  return out;
}

Tensors SequenceRing::shifted(const Tensors& x, int by, bool back) const {
  return moves_.permute(x, senders(by), back).finish()[0];
}

Transfer SequenceRing::begin_shift(const Tensors& x, bool back) const { return moves_.permute(x, senders(1), back); }

// Returns, for each device i, the device that takes half 2 i + which of the sequence. Half h goes to device
// min(h, 2 n - 1 - h) of n. So device d takes halves d and 2 n - 1 - d: one from each end of the sequence.
std::vector<int> SequenceRing::takers(int which) const {
  std::vector<int> out;
  for (int i = 0; i < devices_; ++i) out.push_back(std::min(2 * i + which, 2 * devices_ - 1 - (2 * i + which)));
  return out;
}

// Sends each half of a block to its taker. Even halves arrive as first halves.
Tensors SequenceRing::spread(const Tensors& x, bool back) const {
  if (!folds_) return x;
  Tensors first, second;
  for (const at::Tensor& t : x) first.push_back(half_of(t, 0)), second.push_back(half_of(t, 1));
  first = moves_.permute(first, inverse(takers(0)), back).finish()[0];
  second = moves_.permute(second, inverse(takers(1)), back).finish()[0];
  for (size_t s = 0; s < x.size(); ++s)
    first[s] = is_odd(s) ? at::cat({second[s], first[s]}, 1) : at::cat({first[s], second[s]}, 1);
  return first;
}

Tensors SequenceRing::collected(const Tensors& x, bool back) const {
  if (!folds_) return x;
  Tensors first, second;
  for (size_t s = 0; s < x.size(); ++s) {
    first.push_back(half_of(x[s], is_odd(s)));
    second.push_back(half_of(x[s], !is_odd(s)));
  }
  first = moves_.permute(first, takers(0), back).finish()[0];
  second = moves_.permute(second, takers(1), back).finish()[0];
  for (size_t s = 0; s < x.size(); ++s) first[s] = at::cat({first[s], second[s]}, 1);
  return first;
}

}  // namespace tessera::detail
