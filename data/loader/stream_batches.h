// StreamBatches and DividedBatches: readers of one shard's rows of a stream's global batches.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "data/datasets/collate.h"
#include "data/loader/loader_core.h"
#include "data/streams/stream_transforms.h"

namespace tessera::data::detail {

void check_parts(int64_t parts, const LoaderOptions& options);
int64_t records_of_a_part(int64_t records, int64_t parts);  // Error (invalid_argument): not divisible by `parts`

// Collates the records into a batch; an error names the position after them.
template <class T, class Collate>
AnyItem collated(const Collate& collate, std::vector<T> records, int64_t valid, const StreamPosition& after) {
  try {
    return std::make_shared<batch_of<Collate, T>>(collate(std::move(records), valid));
  } catch (...) {
    fail_at_stream_batch(after);
  }
}

// Reads all records of the stream and keeps the rows of one shard.
template <class T, class Collate>
class StreamBatches : public BatchReader {
 public:
  StreamBatches(const StreamPlan<T>& plan, Collate collate, const StreamPosition& from, const LoaderOptions& options)
      : collate_(std::move(collate)),
        options_(options),
        rows_(rows_of_shard(options.batch_size, options.shard)),
        reader_(plan.open(from, options.prefetch > 0 ? options.num_threads : 1)),
        whole_epoch_(from == StreamPosition{from.epoch}) {}

  static void check(const StreamPlan<T>&, const LoaderOptions&) {}

  Item next(const std::atomic<bool>& stop) override {
    if (std::exchange(epoch_over_, false)) return {nullptr, reader_->position(), 0};
    const int64_t epoch = reader_->position().epoch;
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

  StreamPosition skip(int64_t records) override {
    whole_epoch_ = whole_epoch_ && records == 0;
    for (bool was_empty = false; records > 0; was_empty = !was_empty) {
      while (records > 0 && reader_->next(nullptr)) was_empty = false, --records;
      if (was_empty) fail_no_batch(0, options_.batch_size, reader_->position().epoch - 1);
    }
    return reader_->position();
  }

 private:
  Item batch(std::vector<T> records, int64_t valid, int64_t count) {
    ++batches_in_epoch_;
    const StreamPosition after = reader_->position();
    return {collated(collate_, std::move(records), valid, after), after, count};
  }

  // Drops or pads the records that are left at the end of an epoch. The reader is already in the next epoch.
  Item end_of_epoch(std::vector<T> kept, std::optional<T> last, int64_t count, int64_t epoch) {
    epoch_over_ = Collate::pads && count > 0;
    if (!epoch_over_ && batches_in_epoch_ == 0 && whole_epoch_) fail_no_batch(count, options_.batch_size, epoch);
    Item item{nullptr, reader_->position(), count};
    if constexpr (Collate::pads) {
      if (count > 0) {
        const auto valid = static_cast<int64_t>(kept.size());
        const T filling = kept.empty() ? *last : kept.back();
        kept.resize(static_cast<size_t>(rows_), filling);
        item = batch(std::move(kept), valid, count);
      }
    }
    batches_in_epoch_ = 0;
    whole_epoch_ = true;
    return item;
  }

  Collate collate_;
  LoaderOptions options_;
  int64_t rows_;  // rows of this shard in a batch
  std::unique_ptr<StreamReader<T>> reader_;
  bool whole_epoch_;  // the epoch was read from its beginning
  bool epoch_over_ = false;
  int64_t batches_in_epoch_ = 0;
};

// Reads only the parts of a divided stream that have rows of one shard. In a position, `input` is the number of records
// that each part has returned.
template <class T, class Collate>
class DividedBatches : public BatchReader {
 public:
  DividedBatches(const DividedPlan<T>& plan, Collate collate, const StreamPosition& from, const LoaderOptions& options)
      : collate_(std::move(collate)),
        options_(options),
        num_parts_(static_cast<int64_t>(plan.parts.size())),
        rows_per_part_(options.batch_size / num_parts_),
        first_part_(num_parts_ / options.shard.count * options.shard.index),
        returned_(from.input) {
    for (int64_t i = 0; i < num_parts_ / options.shard.count; ++i) {
      const auto number = static_cast<size_t>(first_part_ + i);
      const bool is_known = !from.parts.empty() && !from.parts[number].is_elsewhere();
      auto reader = plan.parts[number]->open(is_known ? from.parts[number] : StreamPosition{}, 1);
      const StreamPosition begin = reader->position();
      parts_.push_back({std::move(reader), is_known ? 0 : returned_, begin});
    }
  }

  // Checks the options.
  // Errors (invalid_argument)
  //   a batch size that is not a multiple of the number of parts
  //   a number of parts that is not a multiple of the number of shards
  static void check(const DividedPlan<T>& plan, const LoaderOptions& options) {
    check_parts(static_cast<int64_t>(plan.parts.size()), options);
  }

  Item next(const std::atomic<bool>& stop) override {
    if (!workers_ && options_.prefetch > 0 && options_.num_threads > 1) start(stop);
    std::vector<T> rows;
    for (Part& part : parts_) {
      Share share = workers_ ? std::move(*std::static_pointer_cast<Share>(*workers_->next())) : read(part, &stop);
      std::move(share.rows.begin(), share.rows.end(), std::back_inserter(rows));
      part.after = std::move(share.after);
    }
    returned_ += rows_per_part_;
    const auto valid = static_cast<int64_t>(rows.size());
    return {collated(collate_, std::move(rows), valid, position()), position(), options_.batch_size};
  }

  StreamPosition skip(int64_t records) override {
    returned_ += records_of_a_part(records, num_parts_);
    for (Part& part : parts_) {
      part.to_skip = returned_;
      part.skip(nullptr);
      part.after = part.reader->position();
    }
    return position();
  }

 private:
  struct Part {
    std::unique_ptr<StreamReader<T>> reader;
    int64_t to_skip = 0;   // records; initially > 0 if the position is unknown and the part is read from its beginning
    StreamPosition after;  // position after the last batch

    void skip(const std::atomic<bool>* stop) {
      for (; to_skip > 0; --to_skip) reader->next(stop);
    }
  };

  // The rows of one part in one batch.
  struct Share {
    std::vector<T> rows;
    StreamPosition after;
  };

  Share read(Part& part, const std::atomic<bool>* stop) {
    part.skip(stop);
    Share share;
    for (int64_t i = 0; i < rows_per_part_; ++i) share.rows.push_back(*part.reader->next(stop));
    share.after = part.reader->position();
    return share;
  }

  // Makes at most one share of each part ahead, so that no two threads read the same part.
  void start(const std::atomic<bool>& stop) {
    const auto make = [this, &stop](int64_t number) -> AnyItem {
      return std::make_shared<Share>(read(parts_[static_cast<size_t>(number) % parts_.size()], &stop));
    };
    workers_ = std::make_unique<Prefetcher>(make, static_cast<int>(parts_.size()), options_.num_threads);
  }

  StreamPosition position() const {
    StreamPosition position{0, returned_};
    position.parts.assign(static_cast<size_t>(num_parts_), StreamPosition::elsewhere());
    for (size_t i = 0; i < parts_.size(); ++i) position.parts[static_cast<size_t>(first_part_) + i] = parts_[i].after;
    return position;
  }

  Collate collate_;
  LoaderOptions options_;
  int64_t num_parts_, rows_per_part_, first_part_;  // in all processes; per part in a batch; of this shard
  int64_t returned_;
  std::vector<Part> parts_;              // the parts that this shard reads
  std::unique_ptr<Prefetcher> workers_;  // declared last: destroyed before the parts that its threads use
};

}  // namespace tessera::data::detail
