// StreamPlan and StreamReader: type-erased streams, and the stream that reads a dataset's records.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/datasets/nodes.h"
#include "data/streams/prefetch.h"
#include "data/streams/stream_position.h"

namespace tessera::data::detail {

// Throw the current exception again as an Error "[next] record 17 of epoch 0: its message"; `where` names the record.
// Call them in a catch handler.
[[noreturn]] void fail_next(const std::string& where);
[[noreturn]] void fail_at_record(int64_t epoch, int64_t index);
[[noreturn]] void fail_at_stream_record(const StreamPosition& from);

[[noreturn]] void fail_empty(int64_t records, int64_t epoch);
[[noreturn]] void fail_stopped();
[[noreturn]] void fail_misplaced(const StreamPosition& position);

// Reads the records of a stream from a position on.
template <class T>
class StreamReader {
 public:
  virtual ~StreamReader() = default;
  // Returns the next record, or std::nullopt at the end of an epoch, after which the next one begins. `stop`, if given,
  // becomes true when the record is no longer needed; then next() throws.
  virtual std::optional<T> next(const std::atomic<bool>* stop) = 0;
  virtual StreamPosition position() const = 0;  // position of the next record
  // Goes to the beginning of the next epoch; an endless stream stays where it is.
  virtual void skip_epoch() = 0;
};

// The immutable description of a stream, from which readers are opened.
template <class T>
class StreamPlan {
 public:
  virtual ~StreamPlan() = default;
  // Opens a reader at `from`; StreamPosition{} is the beginning. `threads` make records ahead; 0 or 1 makes nothing
  // ahead.
  virtual std::unique_ptr<StreamReader<T>> open(const StreamPosition& from, int threads) const = 0;
  virtual std::string describe() const = 0;
  virtual bool is_endless() const = 0;
  // Returns why the stream does not have this position; empty if it does.
  virtual std::string missing(const StreamPosition& position) const = 0;
  virtual double passes(const StreamPosition& position) const = 0;  // passes over the data before the position
};

template <class T>
using StreamPlanPtr = std::shared_ptr<const StreamPlan<T>>;
template <class T>
using StreamPlans = std::vector<StreamPlanPtr<T>>;

// The iterator of a range: its elements are the results of a function until it returns std::nullopt.
template <class T>
class NextIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = T;
  using difference_type = std::ptrdiff_t;
  using pointer = const T*;
  using reference = const T&;

  explicit NextIterator(std::function<std::optional<T>()> next) : next_(std::move(next)), record_(next_()) {}
  const T& operator*() const { return *record_; }
  const T* operator->() const { return &*record_; }
  NextIterator& operator++() {
    record_ = next_();
    return *this;
  }
  void operator++(int) { ++*this; }
  friend bool operator==(const NextIterator& it, std::default_sentinel_t) { return !it.record_.has_value(); }

 private:
  std::function<std::optional<T>()> next_;
  std::optional<T> record_;
};

// ---- the stream of a dataset's records

// A stream's dataset: the size of an epoch, the number of records of one pass over the data, and the description.
struct StreamSource {
  int64_t size = 0;
  int64_t epoch_length = 0;
  std::function<std::string()> describe;

  std::string missing(const StreamPosition& position) const;
  double passes(const StreamPosition& position) const;
  static constexpr int64_t max_empty_unknown = 10'000'000;
  int64_t max_empty() const;  // limit of consecutive records without outputs; more is an error
};

// Makes the records of a dataset in other threads, in chunks. next() returns them in order from the position `from`.
// `make(epoch, index)` returns a record as AnyItem.
class ChunkReader {
 public:
  ChunkReader(int64_t size, const StreamPosition& from, std::function<AnyItem(int64_t epoch, int64_t index)> make,
              int threads);
  AnyItem next();

 private:
  Prefetcher prefetcher_;
  std::shared_ptr<std::vector<Outcome>> chunk_;
  size_t at_ = 0;
};

// Returns the records that map(), filter() and flat_map() make of record `index` of the dataset: none, one or more.
template <class T>
using Outputs = std::function<std::vector<T>(int64_t epoch, int64_t index)>;

template <class T>
class SourceReader : public StreamReader<T> {
 public:
  SourceReader(const StreamSource& source, Outputs<T> make, const StreamPosition& from, int threads)
      : make_(std::move(make)), size_(source.size), max_empty_(source.max_empty()), threads_(threads) {
    if (from.since != 0) fail_misplaced(from);
    go_to(from);
  }

  std::optional<T> next(const std::atomic<bool>* stop) override {
    for (int64_t empty = 0; outputs_.empty(); ++empty) {
      if (stop && stop->load(std::memory_order_relaxed)) fail_stopped();
      if (position_.input == size_) {
        position_ = {position_.epoch + 1};
        return std::nullopt;
      }
      if (empty == max_empty_) fail_empty(empty, position_.epoch);
      std::vector<T> outputs = ahead_ ? std::move(*std::static_pointer_cast<std::vector<T>>(ahead_->next()))
                                      : made(make_, position_.epoch, position_.input);
      if (position_.offset > 0 && position_.offset >= static_cast<int64_t>(outputs.size())) fail_misplaced(position_);
      if (outputs.empty()) ++position_.input;
      outputs_ = std::move(outputs);
    }
    T record = std::move(outputs_[static_cast<size_t>(position_.offset)]);
    if (++position_.offset == static_cast<int64_t>(outputs_.size())) {
      outputs_.clear();
      position_.offset = 0;
      ++position_.input;
    }
    return record;
  }

  StreamPosition position() const override { return position_; }
  void skip_epoch() override {
    if (size_ != endless) go_to({position_.epoch + 1});
  }

 private:
  void go_to(const StreamPosition& position) {
    position_ = position;
    outputs_.clear();
    ahead_.reset();
    const auto make = [make = make_](int64_t epoch, int64_t index) -> AnyItem {
      return std::make_shared<std::vector<T>>(made(make, epoch, index));
    };
    if (threads_ > 1) ahead_ = std::make_unique<ChunkReader>(size_, position, make, threads_);
  }

  static std::vector<T> made(const Outputs<T>& make, int64_t epoch, int64_t index) {
    try {
      return make(epoch, index);
    } catch (...) {
      fail_at_record(epoch, index);
    }
  }

  Outputs<T> make_;
  int64_t size_, max_empty_;
  int threads_;
  StreamPosition position_;
  std::vector<T> outputs_;  // outputs of input record position_.input
  std::unique_ptr<ChunkReader> ahead_;
};

template <class T>
struct SourcePlan : StreamPlan<T> {
  StreamSource source;
  Outputs<T> make;
  SourcePlan(StreamSource s, Outputs<T> m) : source(std::move(s)), make(std::move(m)) {}

  std::unique_ptr<StreamReader<T>> open(const StreamPosition& from, int threads) const override {
    return std::make_unique<SourceReader<T>>(source, make, from, threads);
  }
  std::string describe() const override { return source.describe(); }
  bool is_endless() const override { return source.size == endless; }
  std::string missing(const StreamPosition& position) const override { return source.missing(position); }
  double passes(const StreamPosition& position) const override { return source.passes(position); }
};

}  // namespace tessera::data::detail
