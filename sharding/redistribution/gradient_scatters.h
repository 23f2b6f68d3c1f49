// GradientScatters: the reduce_scatters of gathered weights' gradients, coalesced by block.
#pragma once

#include <deque>
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

// Gradients wait until one of another block comes; then all of the block go back in one collective, which between
// processes runs beside the backward pass. They arrive in the tape as late gradients.
class GradientScatters {
 public:
  GradientScatters(TapeState& tape, GatherGroups by) : tape_(tape), by_(by) {}

  // Whether the gradients of this leaf may be late: not where a guard may forbid them, and not where the leaf's sum over
  // other processes begins during the backward pass.
  bool takes(const ArrayImpl& leaf) const;
  void add(WeightGradient gradient);
  // All that wait or are under way.
  void finish();

 private:
  struct UnderWay {
    std::vector<WeightGradient> gradients;
    std::unique_ptr<Shipping> shipping;
  };
  void send();
  void receive();

  TapeState& tape_;
  const GatherGroups by_;
  std::string block_;
  std::vector<WeightGradient> waiting_;
  std::deque<UnderWay> under_way_;
};

}  // namespace tessera::detail
