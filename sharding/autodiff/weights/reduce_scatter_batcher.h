// ReduceScatterBatcher: batches the reduce-scatters of gathered weights' gradients by block.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sharding/array/tape_state.h"
#include "sharding/redistribution/communicate.h"
#include "sharding/redistribution/resharding.h"

namespace tessera::detail {

// The gradient of a weight that was gathered from `leaf` by `resharding`, on its way back.
struct WeightGradient {
  ArrayPtr parameter, leaf;
  std::shared_ptr<const Resharding> resharding;
  Tensors tensors;
};

// Gradients wait until all of their block are there, or one of another block comes; then they go back in one
// collective, which between processes runs beside the backward pass. They arrive in the tape as late gradients.
class ReduceScatterBatcher {
 public:
  ReduceScatterBatcher(TapeState& tape, GatherGroups by) : tape_(tape), by_(by) {}

  // A gradient of this leaf will come from this gather of it, if that is used in the backward pass.
  void expect(const ArrayImpl& leaf, const Resharding& gather);
  bool expects(const ArrayImpl& leaf) const { return expected_.contains(&leaf); }
  // How many will come, if all its gathers are used.
  int expected_of(const ArrayImpl& leaf) const { return expects(leaf) ? expected_.at(&leaf) : 0; }
  // Called whenever some have arrived.
  void listen(std::function<void()> listener) { listener_ = std::move(listener); }
  // Whether they may be late: not in another tape's backward pass, and not where a guard may forbid them.
  bool takes() const;
  void add(WeightGradient gradient);
  // All that wait or are under way.
  void finish();
  // The tape is closed, after its backward pass or without one: what waits or is under way is given up.
  void abandon();

 private:
  struct UnderWay {
    std::vector<WeightGradient> gradients;
    std::unique_ptr<Transfer> transfer;
  };
  std::string block_of(const Resharding& gather) const;
  void send();
  void receive();

  TapeState& tape_;
  const GatherGroups by_;
  std::map<const ArrayImpl*, int> expected_;
  std::function<void()> listener_;
  std::map<std::string, int> missing_;  // of each block
  std::string block_;
  std::vector<WeightGradient> waiting_;
  std::deque<UnderWay> under_way_;
};

}  // namespace tessera::detail
