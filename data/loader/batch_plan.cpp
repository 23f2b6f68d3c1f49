// Computes positions, epochs and the records of each shard.
#include "data/loader/batch_plan.h"

#include <algorithm>

#include "data/datasets/dataset.h"
#include "sharding/base/fail.h"

namespace tessera::data::detail {

int64_t rows_of_shard(int64_t batch_size, const ShardOptions& shard) {
  batched_size(endless, batch_size, false);
  strided_split(batch_size, shard);
  if (batch_size % shard.count == 0) return batch_size / shard.count;
  fail(ErrorKind::invalid_argument, "Loader", "batch_size {} is not divisible by {} shards; change one of them",
       batch_size, shard.count);
}

BatchPlan::BatchPlan(int64_t size, int64_t batch_size, const ShardOptions& shard, bool pad)
    : size_(size), batch_size_(batch_size), shard_(shard), pad_(pad) {
  rows_of_shard(batch_size, shard);
  batched_size(size, batch_size, pad);
}

int64_t BatchPlan::batches_in(int64_t records) const {
  return records / batch_size_ + (pad_ && records % batch_size_ != 0);
}

int64_t BatchPlan::batches_per_epoch() const { return size_ == endless ? endless : batches_in(size_); }

int64_t BatchPlan::epoch_of(int64_t position) const { return size_ == endless ? 0 : position / size_; }

bool BatchPlan::begins_epoch(int64_t position) const { return size_ != endless && position % size_ == 0; }

int64_t BatchPlan::normalized(int64_t position) const {
  if (size_ == endless || batches_in(size_ - position % size_) > 0) return position;
  return (position / size_ + 1) * size_;
}

int64_t BatchPlan::after(int64_t position, int64_t batches) const {
  if (size_ == endless) return position + batches * batch_size_;
  const int64_t left = batches_in(size_ - position % size_);
  if (batches < left) return position + batches * batch_size_;
  const int64_t beyond = batches - left;
  const int64_t epoch = position / size_ + 1 + beyond / batches_per_epoch();
  return epoch * size_ + beyond % batches_per_epoch() * batch_size_;
}

RecordRange BatchPlan::records(int64_t position) const {
  const int64_t epoch = epoch_of(position), rows = batch_size_ / shard_.count;
  const int64_t first = size_ == endless ? position : position - epoch * size_;
  const int64_t begin = first + shard_.index * rows;
  return {epoch, begin, rows, std::clamp<int64_t>(size_ - begin, 0, rows), size_ - 1};
}

}  // namespace tessera::data::detail
