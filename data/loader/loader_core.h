// LoaderCore: the part of a Loader that does not depend on the type of its batches: threads, order, place, statistics.
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
#include "data/streams/record_reader.h"

namespace tessera::data {

// The number of batches in an epoch of a stream, which is not known in advance.
inline constexpr int64_t unknown = -1;

struct LoaderOptions {
  // Records in a *global* batch: all processes together.
  int64_t batch_size = 32;
  // The part of every global batch that this loader makes: the index-th of count equal blocks of consecutive rows.
  ShardOptions shard = {};
  // Batches made ahead of use. 0: none, and no threads; next() makes each batch itself.
  int prefetch = 2;
  // Threads that make them; more than `prefetch` are not started (of a Stream, more than its records need).
  int num_threads = 1;
  // How long next() waits for a batch before it throws an Error, up to a year; 0: forever. Needs prefetch.
  std::chrono::milliseconds timeout = {};
};

// Statistics since the loader was made or restored, or since Loader::reset_stats.
struct LoaderStats {
  int64_t num_batches = 0;    // handed out
  int64_t num_records = 0;    // in these batches, of this process
  double seconds = 0;         // from the first call of next() to the end of the last
  double seconds_waited = 0;  // of these, inside next(): how long the trainer waited
  double mean_ready = 0;      // how many batches were ready at a call of next(), on average; at most `prefetch`

  double records_per_second() const { return seconds > 0 ? static_cast<double>(num_records) / seconds : 0; }
  double wait_fraction() const { return seconds > 0 ? seconds_waited / seconds : 0; }
};

// How far a loader is: `epoch` whole passes over the data, and the fraction of the pass that has begun. Passes are
// those over the data before repeat(); for a stream, over its input records.
struct LoaderProgress {
  int64_t epoch = 0;
  double fraction = 0;
};

namespace detail {

// Call these in a catch handler. They throw the current exception again as an Error "[next] the batch ...: its
// message".
[[noreturn]] void fail_at_batch(const RecordRange& records);
[[noreturn]] void fail_at_stream_batch(const StreamMark& before);
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

  // Functions to apply to every batch: Finish where it is made, HandOut where it is handed out. HandOut also gets a
  // null batch at the end of an epoch, and the batch's global_next_index.
  using Finish = std::function<AnyItem(AnyItem)>;
  using HandOut = std::function<AnyItem(AnyItem, int64_t place)>;
  void finish_with(Finish finish);
  void hand_out_with(HandOut hand_out);
  // What state() gives of this process's own.
  using JoinStates = std::function<LoaderState(const LoaderState&)>;
  void join_states_with(JoinStates join) { join_states_ = std::move(join); }

  virtual int64_t batches_per_epoch() const = 0;
  virtual int64_t epoch() const = 0;

 protected:
  struct Made {
    AnyItem batch;
    int ready = 0;  // how many batches were ready when this one was asked for
  };
  virtual Made make_next() = 0;
  virtual void check(const LoaderState& state) const = 0;  // Error (invalid_argument): there is no such place
  virtual void go_to(const LoaderState& state) = 0;
  virtual LoaderState place() const = 0;
  virtual double passes() const = 0;  // over the data
  virtual void stop() = 0;            // ends the threads and drops what was made ahead
  AnyItem finished(AnyItem batch) const { return finish_ && batch ? finish_(std::move(batch)) : batch; }

  LoaderOptions options_;
  DatasetFacts facts_;

 private:
  void hand_out(AnyItem& batch, const LoaderState& before);

  Finish finish_;
  HandOut hand_out_;
  JoinStates join_states_;
  std::optional<int64_t> end_due_;  // the place of an end of an epoch whose HandOut threw
  LoaderStats stats_;
  std::chrono::steady_clock::time_point began_;
};

// Batches by index: any thread makes any batch.
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
    AnyItem batch;  // null: the epoch is over
    StreamMark after;
    int64_t records = 0;  // of all shards, in this batch or passed over
  };
  virtual ~BatchReader() = default;
  virtual Item next(const std::atomic<bool>& stop) = 0;
  virtual StreamMark pass_over(int64_t records) = 0;  // returns the place after them
};

// Batches of a stream: one thread puts them together in order; others make its records ahead.
class StreamCore : public LoaderCore {
 public:
  // What the core asks of a stream: a reader from a mark on, why it has no such place (empty: it has), and how many
  // passes over the data lie before it.
  struct Places {
    std::function<std::unique_ptr<BatchReader>(const StreamMark& from, const LoaderOptions& options)> open;
    std::function<std::string(const StreamMark&)> missing;
    std::function<double(const StreamMark&)> passes;
  };
  StreamCore(const LoaderOptions& options, DatasetFacts facts, Places places);
  ~StreamCore() override { StreamCore::stop(); }

  int64_t batches_per_epoch() const override { return unknown; }
  int64_t epoch() const override { return mark_.epoch; }

 private:
  struct Running;
  std::shared_ptr<Running> opened_at(const StreamMark& mark) const;
  void check(const LoaderState& state) const override;
  Made make_next() override;
  void go_to(const LoaderState& state) override;
  LoaderState place() const override { return {handed_out_, mark_}; }
  double passes() const override { return places_.passes(mark_); }
  void stop() override;

  Places places_;
  StreamMark mark_;
  int64_t handed_out_ = 0;
  std::shared_ptr<Running> running_;
};

}  // namespace detail

}  // namespace tessera::data
