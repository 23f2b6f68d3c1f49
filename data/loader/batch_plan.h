// BatchPlan: which records of a dataset are in each batch, and in each shard of a batch.
#pragma once

#include <cstdint>

#include "data/datasets/shard_options.h"

namespace tessera::data::detail {

// A run of consecutive records of one epoch. Of its `count` rows the first `valid` are records; the others fill up the
// last batch with copies of record `last`.
struct RecordRange {
  int64_t epoch = 0;
  int64_t begin = 0;
  int64_t count = 0;
  int64_t valid = 0;
  int64_t last = 0;  // the last record of the epoch
};

// Which records every batch holds: arithmetic on positions. A position counts records over all epochs and shards:
// position p is record p % size of epoch p / size (an endless dataset is all epoch 0). No data is touched.
class BatchPlan {
 public:
  // `pad`: the records at the end of an epoch that are too few for a batch make a batch that is filled up.
  // Errors (invalid_argument): batch_size < 1, not divisible by shard.count or, without pad, larger than size;
  // shard.index outside [0, shard.count).
  BatchPlan(int64_t size, int64_t batch_size, const ShardOptions& shard, bool pad = false);

  int64_t batches_per_epoch() const;  // `endless` for an endless dataset
  int64_t epoch_of(int64_t position) const;
  bool begins_epoch(int64_t position) const;  // never for an endless dataset

  // The position itself, or the beginning of the next epoch if its epoch has no batch left.
  int64_t normalized(int64_t position) const;

  // The position `batches` batches after a normalized one, itself normalized.
  int64_t after(int64_t position, int64_t batches = 1) const;

  // This shard's rows of the batch at `position`.
  RecordRange records(int64_t position) const;

 private:
  int64_t batches_in(int64_t records) const;

  int64_t size_;
  int64_t batch_size_;
  ShardOptions shard_;
  bool pad_;
};

// The rows of a global batch that one shard makes: batch_size / count. Errors (invalid_argument) as BatchPlan's.
int64_t rows_of_shard(int64_t batch_size, const ShardOptions& shard);

}  // namespace tessera::data::detail
