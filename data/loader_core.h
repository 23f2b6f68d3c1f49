// LoaderCore: what a Loader does whatever the type of its batches: threads, order, place, statistics.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "data/batch_plan.h"
#include "data/loader_state.h"
#include "data/prefetch.h"
#include "data/shard_options.h"

namespace tessera::data {

// The number of batches in an epoch of a stream, which nobody knows before.
inline constexpr int64_t unknown = -1;

struct LoaderOptions {
  // Records in a *global* batch: all processes together.
  int64_t batch_size = 32;
  // The part of every global batch that this loader makes: the index-th of count equal blocks of consecutive rows.
  ShardOptions shard = {};
  // Batches made ahead of use. 0: none, and no thread; each is made when it is asked for.
  int prefetch = 2;
  // Threads that make them; more than `prefetch` are not started (of a Stream, more than its records need).
  int threads = 1;
  // How long next() waits for a batch before it is an Error, up to a year; 0: as long as it takes. Needs prefetch.
  std::chrono::milliseconds timeout = {};
};

// What a loader did since it was made, restored, or asked to begin anew (Loader::reset_stats).
struct LoaderStats {
  int64_t batches = 0;        // handed out
  int64_t records = 0;        // in them, of this process
  double seconds = 0;         // from the first call of next() to the end of the last
  double seconds_waited = 0;  // of these, inside next(): what the trainer waited
  double mean_ready = 0;      // batches that lay ready when one was asked for, on average; of `prefetch` at most

  double records_per_second() const { return seconds > 0 ? static_cast<double>(records) / seconds : 0; }
  double wait_fraction() const { return seconds > 0 ? seconds_waited / seconds : 0; }
};

// How far a loader is: `epoch` whole passes over the data, and the fraction of the one begun. Counted through repeat(),
// also where that makes one endless epoch; of a stream, in the records that it is made of.
struct LoaderProgress {
  int64_t epoch = 0;
  double fraction = 0;
};

namespace detail {

// To be called in a catch handler: throws the current exception again as an Error "[next] record 17 of epoch 0: its
// words", or the same about the collate function of a batch.
[[noreturn]] void fail_at_record(int64_t epoch, int64_t index);
[[noreturn]] void fail_at_batch(const RecordRange& records);
[[noreturn]] void fail_at_stream_record(const StreamMark& from);
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

  // What is to be done with every batch where it is made, and where it is handed out: there also with null at the end
  // of an epoch, and with the batch's global_next_index.
  using Finish = std::function<AnyItem(AnyItem)>;
  using HandOut = std::function<AnyItem(AnyItem, int64_t place)>;
  void finish_with(Finish finish);
  void hand_out_with(HandOut hand_out);

  virtual int64_t batches_per_epoch() const = 0;
  virtual int64_t epoch() const = 0;

 protected:
  struct Made {
    AnyItem batch;
    int ready = 0;  // that lay ready before this one was asked for
  };
  virtual Made make_next() = 0;
  virtual void check(const LoaderState& state) const = 0;  // that there is such a place
  virtual void go_to(const LoaderState& state) = 0;
  virtual LoaderState place() const = 0;
  virtual double passes() const = 0;  // over the data
  virtual void stop() = 0;            // threads; what was made ahead is forgotten
  AnyItem finished(AnyItem batch) const { return finish_ && batch ? finish_(std::move(batch)) : batch; }

  LoaderOptions options_;
  DatasetFacts facts_;

 private:
  void hand_out(AnyItem& batch, const LoaderState& before);

  Finish finish_;
  HandOut hand_out_;
  std::optional<int64_t> end_due_;  // the place of an end of an epoch that failed where it was handed out
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

// What reads a stream in batches, one after another.
class BatchReader {
 public:
  struct Item {
    AnyItem batch;  // null: the epoch is over
    StreamMark after;
    int64_t records = 0;  // of all shards, in this batch or passed over
  };
  virtual ~BatchReader() = default;
  virtual Item next(const std::atomic<bool>& stop) = 0;
  virtual StreamMark pass_over(int64_t records) = 0;  // the place behind them
};

// Batches of a stream: one thread puts them together in order; others make its records ahead.
class StreamCore : public LoaderCore {
 public:
  using Open = std::function<std::unique_ptr<BatchReader>(const StreamMark& from, const LoaderOptions& options)>;
  StreamCore(const LoaderOptions& options, DatasetFacts facts, Open open);
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
  double passes() const override;
  void stop() override;

  Open open_;
  StreamMark mark_;
  int64_t handed_out_ = 0;
  std::shared_ptr<Running> running_;
};

// For other threads than the consumer's: records of a dataset in order, made in chunks. `make(epoch, index)` is a
// record as AnyItem; next() gives them from the mark on.
class ChunkReader {
 public:
  ChunkReader(int64_t size, const StreamMark& from, std::function<AnyItem(int64_t epoch, int64_t index)> make,
              int threads);
  AnyItem next();

 private:
  struct Chunk;
  Prefetcher prefetcher_;
  std::shared_ptr<Chunk> chunk_;
  size_t at_ = 0;
};

}  // namespace detail

}  // namespace tessera::data
