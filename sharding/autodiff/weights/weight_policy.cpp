// Decides how each weight of a tape is gathered, and how its gradient returns.
#include "sharding/autodiff/weights/weight_policy.h"

#include <optional>

#include "sharding/autodiff/weights/reshard_after_forward.h"

namespace tessera::detail {
namespace {

// One gather of a weight: in the order of its step if it has a place there, else by itself.
class WeightConversion : public PolicyConversion {
 public:
  WeightConversion(std::shared_ptr<PrefetchSchedule> gathers, std::shared_ptr<ReduceScatterBatcher> scatters,
                   bool reshard_after_forward, std::shared_ptr<const Resharding> resharding)
      : gathers_(std::move(gathers)),
        scatters_(std::move(scatters)),
        reshard_after_forward_(reshard_after_forward),
        resharding_(std::move(resharding)) {}

  void find_place(const ArrayPtr& a, const ArrayPtr& start) {
    gather_ = gathers_->gather_of(a, start, resharding_);
    if (!gather_ || gather_->parameter < 0 || !is_leaf(*gathers_->parameter(gather_->parameter), start)) return;
    leaf_ = start;
    scatters_->expect(*leaf_, *resharding_);
  }

  Tensors forward(const Tensors& start) override {
    return gather_ ? gathers_->tensors(*gather_, start) : resharding_->forward(start);
  }
  Tensors backward(Tensors gradients) override {
    if (memory_) memory_->release();
    if (!leaf_ || !scatters_->takes()) return resharding_->backward(std::move(gradients));
    scatters_->add({gathers_->parameter(gather_->parameter), leaf_, resharding_, std::move(gradients)});
    return Tensors(leaf_->local.size());
  }
  bool has_late_gradients() const override { return leaf_ != nullptr; }

  std::shared_ptr<BorrowedGather> borrow(const Tensors& start, const Tensors& result, bool recorded) override {
    if (!reshard_after_forward_) return nullptr;
    memory_ = std::make_shared<ReshardAfterForward>(
        [gathers = gathers_, gather = gather_, resharding = resharding_, start]() mutable {
          if (!gather) return resharding->forward(start, /*in_backward_pass=*/true);
          gather->in_backward_pass = true;
          return gathers->tensors(*gather, start);
        });
    memory_->begin(result, recorded);
    return memory_;
  }

 private:
  const std::shared_ptr<PrefetchSchedule> gathers_;
  const std::shared_ptr<ReduceScatterBatcher> scatters_;
  const bool reshard_after_forward_;
  const std::shared_ptr<const Resharding> resharding_;
  std::optional<WeightGather> gather_;
  ArrayPtr leaf_;  // of a parameter, if its gradient is reduce-scattered with its block
  std::shared_ptr<ReshardAfterForward> memory_;
};

}  // namespace

std::shared_ptr<PolicyConversion> WeightPolicy::take(const ArrayPtr& a, const ArrayPtr& start,
                                                     const std::shared_ptr<const Resharding>& resharding) {
  // A gather that the user's own line asks for belongs to the user: its last use is unknown.
  if (!a->weight || resharding->cause.reason == asked_for() || !resharding->gathers()) return nullptr;
  auto conversion = std::make_shared<WeightConversion>(gathers_, scatters_, reshard_after_forward_, resharding);
  conversion->find_place(a, start);
  return conversion;
}

WeightPolicy::~WeightPolicy() {
  gathers_->abandon();
  scatters_->abandon();
}

}  // namespace tessera::detail
