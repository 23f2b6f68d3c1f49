// DividedBatches: the rows of one shard of a divided stream's batches, each part read by itself.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/loader/stream_batches.h"
#include "data/streams/stream_plans.h"

namespace tessera::data::detail {

void check_parts(int64_t parts, const LoaderOptions& options);
int64_t records_of_a_part(int64_t records, int64_t parts);  // Error (invalid_argument): the parts do not divide them

// A mark has a part for each, some of them elsewhere, or none at the beginning.
template <class T>
std::string missing_in_parts(const StreamMark& mark, const Parts<T>& parts) {
  std::string missing = missing_numbers(mark, parts.size());
  for (size_t i = 0; missing.empty() && i < mark.parts.size(); ++i)
    if (!mark.parts[i].is_elsewhere()) missing = parts[i]->missing(mark.parts[i]);
  return missing;
}

template <class T>
double passes_of_parts(const StreamMark& mark, const Parts<T>& parts) {
  for (size_t i = 0; i < mark.parts.size(); ++i)
    if (!mark.parts[i].is_elsewhere()) return parts[i]->passes(mark.parts[i]);
  return 0;
}

// The mark's `input` counts the records that each part has given.
template <class T, class Collate>
class DividedBatches : public BatchReader {
 public:
  DividedBatches(const Parts<T>& parts, Collate collate, const StreamMark& from, const LoaderOptions& options)
      : collate_(std::move(collate)),
        options_(options),
        count_(static_cast<int64_t>(parts.size())),
        each_(options.batch_size / count_),
        first_(count_ / options.shard.count * options.shard.index),
        given_(from.input) {
    for (int64_t i = 0; i < count_ / options.shard.count; ++i) {
      const auto part = static_cast<size_t>(first_ + i);
      const bool is_known = !from.parts.empty() && !from.parts[part].is_elsewhere();
      readers_.push_back(parts[part]->open(is_known ? from.parts[part] : StreamMark{}, 1));
      passed_.push_back(is_known ? 0 : given_);
      marks_.push_back(readers_.back()->mark());
    }
  }

  Item next(const std::atomic<bool>& stop) override {
    if (!workers_ && options_.prefetch > 0 && options_.num_threads > 1) start(stop);
    std::vector<T> rows;
    for (size_t part = 0; part < readers_.size(); ++part) {
      Share share = workers_ ? std::move(*std::static_pointer_cast<Share>(*workers_->next())) : read(part, &stop);
      std::move(share.rows.begin(), share.rows.end(), std::back_inserter(rows));
      marks_[part] = std::move(share.after);
    }
    given_ += each_;
    const auto valid = static_cast<int64_t>(rows.size());
    return {collated(collate_, std::move(rows), valid, mark()), mark(), options_.batch_size};
  }

  StreamMark pass_over(int64_t records) override {
    given_ += records_of_a_part(records, count_);
    for (size_t part = 0; part < readers_.size(); ++part) {
      passed_[part] = given_;
      pass(part, nullptr);
      marks_[part] = readers_[part]->mark();
    }
    return mark();
  }

 private:
  // The rows of one part in one batch.
  struct Share {
    std::vector<T> rows;
    StreamMark after;
  };

  // A part whose place was not known is read from its beginning.
  void pass(size_t part, const std::atomic<bool>* stop) {
    for (; passed_[part] > 0; --passed_[part]) readers_[part]->next(stop);
  }

  Share read(size_t part, const std::atomic<bool>* stop) {
    pass(part, stop);
    Share share;
    for (int64_t i = 0; i < each_; ++i) share.rows.push_back(*readers_[part]->next(stop));
    share.after = readers_[part]->mark();
    return share;
  }

  // Never more ahead than one share of each part, so no part is read by two threads at once.
  void start(const std::atomic<bool>& stop) {
    const auto parts = static_cast<int64_t>(readers_.size());
    const auto make = [this, parts, &stop](int64_t number) -> AnyItem {
      return std::make_shared<Share>(read(static_cast<size_t>(number % parts), &stop));
    };
    workers_ = std::make_unique<Prefetcher>(make, static_cast<int>(parts), options_.num_threads);
  }

  StreamMark mark() const {
    StreamMark mark{0, given_};
    mark.parts.assign(static_cast<size_t>(count_), StreamMark::elsewhere());
    std::copy(marks_.begin(), marks_.end(), mark.parts.begin() + first_);
    return mark;
  }

  Collate collate_;
  LoaderOptions options_;
  int64_t count_, each_, first_;  // parts in all; rows of a part in a batch; the first part of this shard
  int64_t given_;
  std::vector<std::unique_ptr<RecordReader<T>>> readers_;
  std::vector<int64_t> passed_;  // records that each part has still to pass over
  std::vector<StreamMark> marks_;
  std::unique_ptr<Prefetcher> workers_;  // last: it ends before what its threads use
};

}  // namespace tessera::data::detail
