// Positions, epochs and shards: the arithmetic behind every batch.
#include "data/batch_plan.h"

#include <string>

#include "data/dataset.h"
#include "nn/tree.h"

namespace tessera::data::detail {

BatchPlan::BatchPlan(int64_t size, int64_t batch_size, const ShardOptions& shard)
    : size_(size), batch_size_(batch_size), shard_(shard) {
  shard_size(endless, shard);
  batched_size(size, batch_size);
  if (batch_size % shard.count == 0) return;
  fail(ErrorKind::bad_argument, "Loader",
       "batch_size " + std::to_string(batch_size) + " is not divisible by " + std::to_string(shard.count) +
           " shards; change one of them");
}

int64_t BatchPlan::batches_per_epoch() const { return batched_size(size_, batch_size_); }

int64_t BatchPlan::epoch_of(int64_t position) const { return size_ == endless ? 0 : position / size_; }

bool BatchPlan::begins_epoch(int64_t position) const { return size_ != endless && position % size_ == 0; }

int64_t BatchPlan::normalized(int64_t position) const {
  if (size_ == endless || size_ - position % size_ >= batch_size_) return position;
  return (position / size_ + 1) * size_;
}

int64_t BatchPlan::after(int64_t position, int64_t batches) const {
  if (size_ == endless) return position + batches * batch_size_;
  const int64_t left = (size_ - position % size_) / batch_size_;
  if (batches < left) return position + batches * batch_size_;
  const int64_t beyond = batches - left;
  const int64_t epoch = position / size_ + 1 + beyond / batches_per_epoch();
  return epoch * size_ + beyond % batches_per_epoch() * batch_size_;
}

RecordRange BatchPlan::records(int64_t position) const {
  const int64_t epoch = epoch_of(position);
  const int64_t rows = batch_size_ / shard_.count;
  const int64_t first = size_ == endless ? position : position - epoch * size_;
  return {epoch, first + shard_.index * rows, rows};
}

}  // namespace tessera::data::detail
