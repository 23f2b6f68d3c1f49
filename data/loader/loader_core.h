// LoaderCore: the part of a Loader that does not depend on the batch type: threads, order, position, statistics.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "data/datasets/shard_options.h"
#include "data/loader/batch_plan.h"
#include "data/loader/loader_state.h"
#include "data/streams/prefetch.h"
#include "data/streams/stream_position.h"

namespace tessera::data {

// Returned by batches_per_epoch() for a stream, whose length is not known in advance.
inline constexpr int64_t unknown = -1;

struct LoaderOptions {
  // Number of records in a *global* batch: all processes together.
  int64_t batch_size = 32;
  // The rows of every global batch that this loader makes: block `index` of `count` equal blocks of consecutive rows.
  ShardOptions shard = {};
  // Number of batches made ahead of use. 0: next() makes each batch itself, without threads.
  int prefetch = 2;
  // Number of worker threads. At most `prefetch` are started; for a Stream, at most as many as its records need.
  int num_threads = 1;
  // How long next() waits for a batch before it throws, at most a year. 0: forever. Needs prefetch.
  std::chrono::milliseconds timeout = {};
};

// Statistics since the loader was made or restored, or since Loader::reset_stats.
struct LoaderStats {
  int64_t num_batches = 0;    // returned by next()
  int64_t num_records = 0;    // records of this process in these batches
  double seconds = 0;         // from the first call of next() to the end of the last call
  double seconds_waited = 0;  // inside next(): the time that the trainer waited
  double mean_ready = 0;      // average number of batches that were ready at a call of next(); at most `prefetch`

  double records_per_second() const { return seconds > 0 ? static_cast<double>(num_records) / seconds : 0; }
  double wait_fraction() const { return seconds > 0 ? seconds_waited / seconds : 0; }
};

// How far a loader is: `epoch` complete passes over the data, and the fraction of the current pass. Passes are over the
// data before repeat(); for a stream, over its input records.
struct LoaderProgress {
  int64_t epoch = 0;
  double fraction = 0;
};

namespace detail {

// Throw the current exception again as an Error "[next] the batch ...: its message". Call them in a catch handler.
[[noreturn]] void fail_at_batch(const RecordRange& records);
[[noreturn]] void fail_at_stream_batch(const StreamPosition& before);
[[noreturn]] void fail_no_batch(int64_t records, int64_t batch_size, int64_t epoch);

struct DatasetFacts {
  int64_t size = 0;
  int64_t round = 0;
  std::string description;
};

class LoaderCore {
 public:
  explicit LoaderCore(const LoaderOptions& options, DatasetFacts facts);
  virtual ~LoaderCore() = default;

  AnyItem next();  // null at the end of an epoch
  LoaderState state() const;
  const ShardOptions& shard() const { return options_.shard; }
  void restore(const LoaderState& state);
  const LoaderStats& stats() const { return stats_; }
  void reset_stats() { stats_ = {}; }
  LoaderProgress progress() const;

  // Set functions that are applied to every batch: OnProduce in the thread that makes it, OnConsume in the thread that
  // calls next(). OnConsume also gets a null batch at the end of an epoch, and the batch's global_next_index.
  using OnProduce = std::function<AnyItem(AnyItem)>;
  using OnConsume = std::function<AnyItem(AnyItem, int64_t place)>;
  void on_produce(OnProduce f);
  void on_consume(OnConsume f);
  // Computes the result of state() from this process's own state.
  using JoinStates = std::function<LoaderState(const LoaderState&)>;
  void join_states_with(JoinStates join) { join_states_ = std::move(join); }

  virtual int64_t batches_per_epoch() const = 0;
  virtual int64_t epoch() const = 0;

 protected:
  struct Made {
    AnyItem batch;
    int ready = 0;  // number of batches that were ready when this one was requested
  };
  virtual Made make_next() = 0;
  virtual void check(const LoaderState& state) const = 0;  // Error (invalid_argument): no such position
  virtual void go_to(const LoaderState& state) = 0;
  virtual LoaderState place() const = 0;
  virtual double passes() const = 0;  // number of passes over the data so far
  virtual void stop() = 0;            // ends the threads and drops the batches made ahead
  AnyItem finished(AnyItem batch) const { return on_produce_ && batch ? on_produce_(std::move(batch)) : batch; }

  LoaderOptions options_;
  DatasetFacts facts_;

 private:
  void consume(AnyItem& batch, const LoaderState& before);

  OnProduce on_produce_;
  OnConsume on_consume_;
  JoinStates join_states_;
  std::optional<int64_t> end_due_;  // position of an epoch's end at which OnConsume threw
  LoaderStats stats_;
  std::chrono::steady_clock::time_point began_;
};

// Reads batches by index: any thread makes any batch.
class IndexedCore : public LoaderCore {
 public:
  using Make = std::function<AnyItem(const RecordRange&)>;
  IndexedCore(const LoaderOptions& options, DatasetFacts facts, bool pads, Make make);

  int64_t batches_per_epoch() const override { return plan_.batches_per_epoch(); }
  int64_t epoch() const override { return plan_.epoch_of(position_); }

 private:
  AnyItem batch_of(const RecordRange& records) const;
  Made make_next() override;
  void check(const LoaderState& state) const override;
  void go_to(const LoaderState& state) override;
  LoaderState place() const override { return {position_}; }
  double passes() const override { return static_cast<double>(position_) / static_cast<double>(facts_.round); }
  void stop() override { prefetcher_.reset(); }

  BatchPlan plan_;
  Make make_;
  int64_t position_ = 0;
  bool epoch_over_ = false;
  std::unique_ptr<Prefetcher> prefetcher_;
};

// Reads a stream in batches, one after another.
class BatchReader {
 public:
  struct Item {
    AnyItem batch;  // null: end of the epoch
    StreamPosition after;
    int64_t records = 0;  // records of all shards, in this batch or skipped
  };
  virtual ~BatchReader() = default;
  virtual Item next(const std::atomic<bool>& stop) = 0;
  virtual StreamPosition skip(int64_t records) = 0;  // returns the position after them
};

// Reads batches of a stream: one thread collects them in order; other threads make the records ahead.
class StreamCore : public LoaderCore {
 public:
  // Opens a stream at a position, and describes positions: `missing` returns why the stream does not have one (empty:
  // it does); `passes` returns how many passes over the data precede it.
  struct StreamFactory {
    std::function<std::unique_ptr<BatchReader>(const StreamPosition& from, const LoaderOptions& options)> open;
    std::function<std::string(const StreamPosition&)> missing;
    std::function<double(const StreamPosition&)> passes;
  };
  StreamCore(const LoaderOptions& options, DatasetFacts facts, StreamFactory factory);
  ~StreamCore() override { StreamCore::stop(); }

  int64_t batches_per_epoch() const override { return unknown; }
  int64_t epoch() const override { return position_.epoch; }

 private:
  struct Running;
  std::shared_ptr<Running> opened_at(const StreamPosition& position) const;
  void check(const LoaderState& state) const override;
  Made make_next() override;
  void go_to(const LoaderState& state) override;
  LoaderState place() const override { return {handed_out_, position_}; }
  double passes() const override { return factory_.passes(position_); }
  void stop() override;

  StreamFactory factory_;
  StreamPosition position_;
  int64_t handed_out_ = 0;
  std::shared_ptr<Running> running_;
};

}  // namespace detail

}  // namespace tessera::data
