// Sends the gradients of one block at a time.
#include "sharding/autodiff/weights/reduce_scatter_batcher.h"

#include <ATen/core/grad_mode.h>

#include "sharding/accounting/communication_event.h"
#include "sharding/autodiff/weights/prefetch_schedule.h"
#include "sharding/kernels/parallel_for.h"

namespace tessera::detail {
// "" of one that goes back by itself.
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
  under_way_.push_back(
      {std::exchange(waiting_, {}),
       std::make_unique<Transfer>(std::move(items), EventContext{first.cause, first.to, first.from, true},
                                  Direction::backward)});
  while (under_way_.size() > 1 || (!under_way_.empty() && under_way_.front().transfer->has_arrived())) receive();
}

void ReduceScatterBatcher::receive() {
  const at::AutoGradMode off(false);
  UnderWay oldest = std::move(under_way_.front());
  under_way_.pop_front();
  std::vector<Tensors> arrived = oldest.transfer->finish();
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
