// Decides how each weight of a tape is gathered, and how its gradient returns.
#include "sharding/autodiff/weights/weight_policy.h"

#include <ATen/core/grad_mode.h>

#include <optional>

#include "sharding/accounting/communication_event.h"
#include "sharding/kernels/parallel_for.h"

namespace tessera::detail {
namespace {

// One gather of a weight: in the order of its step if it has a place there, else separately.
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

  std::shared_ptr<ReshardAfterForward> reshard_after_forward(const Tensors& start, const Tensors& result,
                                                        bool recorded) override {
    if (!reshard_after_forward_) return nullptr;
    memory_ = std::make_shared<ReshardAfterForward>(
        result, recorded, [gathers = gathers_, gather = gather_, resharding = resharding_, start]() mutable {
          if (!gather) return resharding->forward(start, /*in_backward_pass=*/true);
          gather->in_backward_pass = true;
          return gathers->tensors(*gather, start);
        });
    return memory_;
  }

 private:
  const std::shared_ptr<PrefetchSchedule> gathers_;
  const std::shared_ptr<ReduceScatterBatcher> scatters_;
  const bool reshard_after_forward_;
  const std::shared_ptr<const Resharding> resharding_;
  std::optional<WeightGather> gather_;
  ArrayPtr leaf_;  // the parameter's leaf, if its gradient is reduce-scattered with its block
  std::shared_ptr<ReshardAfterForward> memory_;
};

}  // namespace

std::shared_ptr<PolicyConversion> WeightPolicy::take(const ArrayPtr& a, const ArrayPtr& start,
                                                     const std::shared_ptr<const Resharding>& resharding) {
  // A gather that the user's own line requests is not managed here, because its last use is unknown.
  if (!a->weight || resharding->cause.reason == explicit_reason() || !resharding->gathers()) return nullptr;
  auto conversion = std::make_shared<WeightConversion>(gathers_, scatters_, reshard_after_forward_, resharding);
  conversion->find_place(a, start);
  return conversion;
}

WeightPolicy::~WeightPolicy() {
  gathers_->abandon();
  scatters_->abandon();
}

// ---- reduce-scatters of gradients

// Returns "" for a gradient that is not grouped with others.
std::string ReduceScatterBatcher::block_of(const Resharding& gather) const {
  const Text& path = gather.cause.path;
  return path && by_ == GatherGroups::by_block ? detail::block_of(*path) : "";
}

void ReduceScatterBatcher::expect(const ArrayImpl& leaf, const Resharding& gather) {
  ++expected_[&leaf];
  ++missing_[block_of(gather)];
}

bool ReduceScatterBatcher::takes() const { return differentiated_tape() == &tape_ && !is_guarded(); }

void ReduceScatterBatcher::add(WeightGradient gradient) {
  std::string block = block_of(*gradient.resharding);
  if (!waiting_.empty() && block != block_) send();
  block_ = std::move(block);
  waiting_.push_back(std::move(gradient));
  if (--missing_[block_] == 0 || block_.empty()) send();
}

void ReduceScatterBatcher::send() {
  const at::AutoGradMode off(false);
  std::vector<TransferItem> items;
  for (WeightGradient& g : waiting_)
    items.push_back({g.resharding->steps, as_dtype(std::exchange(g.tensors, {}), g.resharding->gradients),
                     g.resharding->cause.path});
  const Resharding& first = *waiting_[0].resharding;
  under_way_.push_back({std::exchange(waiting_, {}),
                        Transfer(std::move(items), {first.cause, first.to, first.from, true}, Direction::backward)});
  while (under_way_.size() > 1 || (!under_way_.empty() && under_way_.front().transfer.has_arrived())) receive();
}

void ReduceScatterBatcher::receive() {
  const at::AutoGradMode off(false);
  UnderWay oldest = std::move(under_way_.front());
  under_way_.pop_front();
  std::vector<Tensors> arrived = oldest.transfer.finish();
  for (size_t i = 0; i < arrived.size(); ++i) {
    WeightGradient& g = oldest.gradients[i];
    bring_to_memory_of(g.resharding->from->mesh, arrived[i]);
    tape_.late.push_back({std::move(g.parameter), std::move(g.leaf), std::move(arrived[i])});
  }
  if (listener_) listener_();
}

void ReduceScatterBatcher::finish() {
  if (!waiting_.empty()) send();
  while (!under_way_.empty()) receive();
}

void ReduceScatterBatcher::abandon() {
  waiting_.clear();
  under_way_.clear();
}

}  // namespace tessera::detail
