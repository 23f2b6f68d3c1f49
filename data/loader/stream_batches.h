// StreamBatches: reads a stream in global batches and keeps the rows of one shard.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "data/datasets/collate.h"
#include "data/loader/loader_core.h"
#include "data/streams/record_reader.h"

namespace tessera::data::detail {

// The batch of the records; an error names where it ends.
template <class T, class Collate>
AnyItem collated(const Collate& collate, std::vector<T> records, int64_t valid, const StreamMark& after) {
  try {
    return std::make_shared<batch_of<Collate, T>>(collate(std::move(records), valid));
  } catch (...) {
    fail_at_stream_batch(after);
  }
}

inline int threads_ahead(const LoaderOptions& options) { return options.prefetch > 0 ? options.num_threads : 1; }

template <class T, class Collate>
class StreamBatches : public BatchReader {
 public:
  StreamBatches(const StreamPlan<T>& plan, Collate collate, const StreamMark& from, const LoaderOptions& options)
      : collate_(std::move(collate)),
        options_(options),
        rows_(rows_of_shard(options.batch_size, options.shard)),
        reader_(plan.open(from, threads_ahead(options))),
        whole_epoch_(from == StreamMark{from.epoch}) {}

  Item next(const std::atomic<bool>& stop) override {
    if (std::exchange(epoch_over_, false)) return {nullptr, reader_->mark(), 0};
    const int64_t epoch = reader_->mark().epoch;
    std::vector<T> kept;
    std::optional<T> last;
    int64_t count = 0;
    for (; count < options_.batch_size; ++count) {
      auto record = reader_->next(&stop);
      if (!record) return end_of_epoch(std::move(kept), std::move(last), count, epoch);
      if (count / rows_ == options_.shard.index)
        kept.push_back(std::move(*record));
      else
        last = std::move(record);
    }
    return batch(std::move(kept), rows_, count);
  }

  StreamMark pass_over(int64_t records) override {
    whole_epoch_ = whole_epoch_ && records == 0;
    for (bool barren = false; records > 0; barren = !barren) {
      while (records > 0 && reader_->next(nullptr)) barren = false, --records;
      if (barren) fail_no_batch(0, options_.batch_size, reader_->mark().epoch - 1);
    }
    return reader_->mark();
  }

 private:
  Item batch(std::vector<T> records, int64_t valid, int64_t count) {
    ++batches_in_epoch_;
    const StreamMark after = reader_->mark();
    return {collated(collate_, std::move(records), valid, after), after, count};
  }

  // The records left of an epoch are dropped, or filled up to a last batch. The reader stands in the next epoch.
  Item end_of_epoch(std::vector<T> kept, std::optional<T> last, int64_t count, int64_t epoch) {
    if constexpr (Collate::pads) {
      if (count > 0) return last_batch(std::move(kept), std::move(last), count);
    }
    if (batches_in_epoch_ == 0 && whole_epoch_) fail_no_batch(count, options_.batch_size, epoch);
    begin_epoch();
    return {nullptr, reader_->mark(), count};
  }

  Item last_batch(std::vector<T> kept, std::optional<T> last, int64_t count) {
    const auto valid = static_cast<int64_t>(kept.size());
    const T filling = kept.empty() ? *last : kept.back();
    kept.resize(static_cast<size_t>(rows_), filling);
    epoch_over_ = true;
    Item item = batch(std::move(kept), valid, count);
    begin_epoch();
    return item;
  }

  void begin_epoch() {
    batches_in_epoch_ = 0;
    whole_epoch_ = true;
  }

  Collate collate_;
  LoaderOptions options_;
  int64_t rows_;  // of this shard in a batch
  std::unique_ptr<RecordReader<T>> reader_;
  bool whole_epoch_;  // read from its beginning
  bool epoch_over_ = false;
  int64_t batches_in_epoch_ = 0;
};

}  // namespace tessera::data::detail
