// WeightPolicy: a tape's policy for its weights, which prefetches gathers, frees them after use and batches gradients.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "sharding/autodiff/weights/prefetch_schedule.h"
#include "sharding/autodiff/weights/reduce_scatter_batcher.h"
#include "sharding/redistribution/conversion_policy.h"

namespace tessera::detail {

class WeightPolicy : public ConversionPolicy {
 public:
  WeightPolicy(TapeState& tape, std::vector<ArrayPtr> parameters)
      : gathers_(std::make_shared<PrefetchSchedule>(std::move(parameters), tape.options)),
        scatters_(std::make_shared<ReduceScatterBatcher>(tape, tape.options.gather_groups)),
        reshard_after_forward_(tape.options.reshard_after_forward) {}
  // Gives up what is under way: a graph that outlives the tape may hold conversions.
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
