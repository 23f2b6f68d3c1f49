// WeightPolicy: a tape's policy for its weights, which prefetches gathers, frees them after use and batches gradients.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sharding/array/tape_state.h"
#include "sharding/autodiff/weights/prefetch_schedule.h"
#include "sharding/redistribution/convert.h"

namespace tessera::detail {

// The gradient of a weight that was gathered from `leaf` by `resharding`, before it is reduce-scattered.
struct WeightGradient {
  ArrayPtr parameter, leaf;
  std::shared_ptr<const Resharding> resharding;
  Tensors tensors;
};

// Batches reduce-scatters of weight gradients per block. Gradients wait until all gradients of their block have
// arrived, or one of another block arrives. Then one collective reduces them; between processes it overlaps with the
// backward pass. The results reach the tape as late gradients.
class ReduceScatterBatcher {
 public:
  ReduceScatterBatcher(TapeState& tape, GatherGroups by) : tape_(tape), by_(by) {}

  // Announces that this gather returns a gradient of this leaf if its result is used in the backward pass.
  void expect(const ArrayImpl& leaf, const Resharding& gather);
  bool expects(const ArrayImpl& leaf) const { return expected_.contains(&leaf); }
  // Returns the number of gradients that arrive if the results of all its gathers are used.
  int expected_of(const ArrayImpl& leaf) const { return expects(leaf) ? expected_.at(&leaf) : 0; }
  // Sets a function that is called whenever some gradients have arrived.
  void listen(std::function<void()> listener) { listener_ = std::move(listener); }
  // Returns whether gradients may be late: false in another tape's backward pass, and under a guard that may forbid
  // them.
  bool takes() const;
  void add(WeightGradient gradient);
  // Sends waiting gradients and waits for all in flight.
  void finish();
  // Abandons waiting gradients and those in flight, when the tape is closed, after its backward pass or without one.
  void abandon();

 private:
  struct UnderWay {
    std::vector<WeightGradient> gradients;
    Transfer transfer;
  };
  std::string block_of(const Resharding& gather) const;
  void send();
  void receive();

  TapeState& tape_;
  const GatherGroups by_;
  std::map<const ArrayImpl*, int> expected_;
  std::function<void()> listener_;
  std::map<std::string, int> missing_;  // by block, the number of gradients that have not arrived
  std::string block_;
  std::vector<WeightGradient> waiting_;
  std::deque<UnderWay> under_way_;
};

class WeightPolicy : public ConversionPolicy {
 public:
  WeightPolicy(TapeState& tape, std::vector<ArrayPtr> parameters)
      : gathers_(std::make_shared<PrefetchSchedule>(std::move(parameters), tape.options)),
        scatters_(std::make_shared<ReduceScatterBatcher>(tape, tape.options.gather_groups)),
        reshard_after_forward_(tape.options.reshard_after_forward) {}
  // Abandons transfers in flight: a graph that outlives the tape may hold conversions.
  ~WeightPolicy() override;
  WeightPolicy(const WeightPolicy&) = delete;
  WeightPolicy& operator=(const WeightPolicy&) = delete;

  std::shared_ptr<PolicyConversion> take(const ArrayPtr& a, const ArrayPtr& start,
                                         const std::shared_ptr<const Resharding>& resharding) override;
  PrefetchSchedule& gathers() { return *gathers_; }
  ReduceScatterBatcher& scatters() { return *scatters_; }

 private:
  const std::shared_ptr<PrefetchSchedule> gathers_;
  const std::shared_ptr<ReduceScatterBatcher> scatters_;
  const bool reshard_after_forward_;
};

}  // namespace tessera::detail
