// One block at a time.
#include "sharding/redistribution/gradient_scatters.h"

#include <ATen/core/grad_mode.h>

#include "sharding/accounting/communication_event.h"
#include "sharding/kernels/parallel_for.h"
#include "sharding/redistribution/gather_schedule.h"

namespace tessera::detail {
// "" of one that goes back by itself.
std::string GradientScatters::block_of(const Resharding& gather) const {
  const Text& path = gather.cause.path;
  return path && by_ == GatherGroups::by_block ? detail::block_of(*path) : "";
}

void GradientScatters::expect(const ArrayImpl& leaf, const Resharding& gather) {
  ++expected_[&leaf];
  ++missing_[block_of(gather)];
}

bool GradientScatters::takes() const { return differentiated_tape() == &tape_ && !is_guarded(); }

void GradientScatters::add(WeightGradient gradient) {
  std::string block = block_of(*gradient.resharding);
  if (!waiting_.empty() && block != block_) send();
  block_ = std::move(block);
  waiting_.push_back(std::move(gradient));
  if (--missing_[block_] == 0 || block_.empty()) send();
}

void GradientScatters::send() {
  const at::AutoGradMode off(false);
  std::vector<Shipment> shipments;
  for (WeightGradient& g : waiting_)
    shipments.push_back({g.resharding->steps, as_dtype(std::exchange(g.tensors, {}), g.resharding->gradients),
                         g.resharding->cause.path});
  const Resharding& first = *waiting_[0].resharding;
  under_way_.push_back(
      {std::exchange(waiting_, {}),
       std::make_unique<Shipping>(std::move(shipments), EventContext{first.cause, first.to, first.from, true},
                                  Direction::back)});
  while (under_way_.size() > 1 || (!under_way_.empty() && under_way_.front().shipping->has_arrived())) receive();
}

void GradientScatters::receive() {
  const at::AutoGradMode off(false);
  UnderWay oldest = std::move(under_way_.front());
  under_way_.pop_front();
  std::vector<Tensors> arrived = oldest.shipping->finish();
  for (size_t i = 0; i < arrived.size(); ++i) {
    WeightGradient& g = oldest.gradients[i];
    bring_to_memory_of(g.resharding->from->mesh, arrived[i]);
    tape_.late.push_back({std::move(g.parameter), std::move(g.leaf), std::move(arrived[i])});
  }
  if (listener_) listener_();
}

void GradientScatters::finish() {
  if (!waiting_.empty()) send();
  while (!under_way_.empty()) receive();
}

void GradientScatters::abandon() {
  waiting_.clear();
  under_way_.clear();
}

}  // namespace tessera::detail
