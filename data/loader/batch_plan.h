// BatchPlan: the records of a dataset in each batch, and in each shard of a batch.
#pragma once

#include <cstdint>

#include "data/datasets/shard_options.h"

namespace tessera::data::detail {

// A run of consecutive records of one epoch. The first `valid` of its `count` rows are records. The others pad the last
// batch with copies of record `last`.
struct RecordRange {
  int64_t epoch = 0;
  int64_t begin = 0;
  int64_t count = 0;
  int64_t valid = 0;
  int64_t last = 0;  // the last record of the epoch
};

// Computes the records of every batch by arithmetic on positions, without touching data. A position counts records over
// all epochs and shards: position p is record p % size of epoch p / size (an endless dataset is all epoch 0).
class BatchPlan {
 public:
  // With `pad`, the records at the end of an epoch that do not fill a batch make a padded batch.
  // Errors (invalid_argument)
  //   batch_size < 1, not divisible by shard.count or, without `pad`, larger than size
  //   shard.index outside [0, shard.count)
  BatchPlan(int64_t size, int64_t batch_size, const ShardOptions& shard, bool pad = false);

  int64_t batches_per_epoch() const;  // `endless` for an endless dataset
  int64_t epoch_of(int64_t position) const;
  bool begins_epoch(int64_t position) const;  // never true for an endless dataset

  // Returns `position`, or the beginning of the next epoch if no batch is left in the position's epoch.
  int64_t normalized(int64_t position) const;

  // Returns the normalized position that is `batches` batches after a normalized one.
  int64_t after(int64_t position, int64_t batches = 1) const;

  // Returns this shard's rows of the batch at `position`.
  RecordRange records(int64_t position) const;

 private:
  int64_t batches_in(int64_t records) const;

  int64_t size_;
  int64_t batch_size_;
  ShardOptions shard_;
  bool pad_;
};

// Returns how many rows of a global batch one shard makes: batch_size / count. Errors (invalid_argument): as BatchPlan.
int64_t rows_of_shard(int64_t batch_size, const ShardOptions& shard);

}  // namespace tessera::data::detail
