// LoaderCore: a loader's position, its threads, and errors that name their record.
#include "data/loader/loader_core.h"

#include <cmath>
#include <optional>
#include <utility>

#include "data/datasets/dataset.h"
#include "data/loader/stream_batches.h"
#include "sharding/base/fail.h"
#include "sharding/events/observer.h"

namespace tessera::data::detail {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// Returns the prefetcher's next item. Resets `owner` after any error other than a timeout.
template <class Owner>
AnyItem in_time_or_reset(Prefetcher& prefetcher, std::chrono::milliseconds timeout, Owner& owner) {
  std::optional<AnyItem> item;
  try {
    item = prefetcher.next(timeout);
  } catch (...) {
    owner.reset();
    throw;
  }
  if (item) return std::move(*item);
  fail(ErrorKind::other, "next",
       "no batch within {} ms (LoaderOptions::timeout); it is still being made, and another call continues to wait. "
       "Check the dataset.",
       timeout.count());
}

LoaderOptions checked(const LoaderOptions& options) {
  constexpr auto kind = ErrorKind::invalid_argument;
  if (options.prefetch < 0) fail(kind, "Loader", "prefetch {}, expected 0 (no thread) or more", options.prefetch);
  if (options.num_threads < 1)
    fail(kind, "Loader", "num_threads {}, expected at least 1; prefetch = 0 uses none", options.num_threads);
  if (options.timeout < std::chrono::milliseconds(0) || options.timeout > std::chrono::hours(24 * 365))
    fail(kind, "Loader", "a timeout of {} ms, expected 0 (none) to a year", options.timeout.count());
  if (options.timeout.count() > 0 && options.prefetch == 0)
    fail(kind, "Loader",
         "a timeout without prefetch: next() then makes each batch itself. Set prefetch, or no timeout");
  rows_of_shard(options.batch_size, options.shard);
  return options;
}

}  // namespace

void fail_at_batch(const RecordRange& records) {
  const int64_t last = records.begin + records.count - 1;
  fail_next(fmt::format("the batch of records {} to {} of epoch {}", records.begin, last, records.epoch));
}

void fail_at_stream_batch(const StreamPosition& before) {
  fail_next("the batch that ends before record " + std::to_string(before.input) + " of epoch " +
            std::to_string(before.epoch));
}

void fail_no_batch(int64_t records, int64_t batch_size, int64_t epoch) {
  fail(ErrorKind::invalid_argument, "next",
       "epoch {} of the stream has {} records, fewer than one batch of {}; use a smaller batch, repeat() before the "
       "first operation of the stream, or pad_last_batch()",
       epoch, records, batch_size);
}

// ---- every loader ---------------------------------------------------------------------------------------------------

LoaderCore::LoaderCore(const LoaderOptions& options, DatasetFacts facts)
    : options_(checked(options)), facts_(std::move(facts)) {}

AnyItem LoaderCore::next() {
  const tessera::detail::ActivityScope waiting(tessera::detail::Activity::input);
  const auto asked = Clock::now();
  if (stats_.num_batches == 0 && stats_.seconds == 0) began_ = asked;
  const LoaderState before = place();
  Made made = end_due_ ? Made() : make_next();
  stats_.seconds_waited += seconds_since(asked);
  if (on_consume_) consume(made.batch, before);
  stats_.seconds = seconds_since(began_);
  if (!made.batch) return nullptr;
  ++stats_.num_batches;
  stats_.num_records += options_.batch_size / options_.shard.count;
  stats_.mean_ready += (made.ready - stats_.mean_ready) / static_cast<double>(stats_.num_batches);
  return std::move(made.batch);
}

void LoaderCore::consume(AnyItem& batch, const LoaderState& before) {
  const bool is_end = !batch;
  const int64_t place = end_due_.value_or(before.global_next_index);
  end_due_.reset();
  try {
    batch = on_consume_(std::move(batch), place);
  } catch (...) {
    if (is_end) {
      end_due_ = place;
    } else {
      stop();
      go_to(before);
    }
    throw;
  }
}

LoaderState LoaderCore::state() const {
  LoaderState state = place();
  state.dataset = facts_.description;
  return join_states_ ? join_states_(state) : state;
}

void LoaderCore::restore(const LoaderState& state) {
  constexpr int64_t max_index = int64_t{1} << 62;
  if (state.global_next_index < 0 || state.global_next_index > max_index)
    fail(ErrorKind::invalid_argument, "restore", "global_next_index {}, expected 0 to 2^62", state.global_next_index);
  check_same_dataset(state.dataset, facts_.description);
  check(state);
  stop();
  go_to(state);
  end_due_.reset();
  stats_ = {};
}

LoaderProgress LoaderCore::progress() const {
  const double done = passes(), whole = std::floor(done);
  return {static_cast<int64_t>(whole), done - whole};
}

void LoaderCore::on_produce(OnProduce f) {
  if (on_consume_) {
    return on_consume([f = std::move(f)](AnyItem x, int64_t) { return x ? f(std::move(x)) : nullptr; });
  }
  stop();
  if (on_produce_)
    on_produce_ = [first = on_produce_, then = std::move(f)](AnyItem x) { return then(first(std::move(x))); };
  else
    on_produce_ = std::move(f);
}

void LoaderCore::on_consume(OnConsume f) {
  if (on_consume_)
    on_consume_ = [first = on_consume_, then = std::move(f)](AnyItem x, int64_t place) {
      return then(first(std::move(x), place), place);
    };
  else
    on_consume_ = std::move(f);
}

// ---- by index -------------------------------------------------------------------------------------------------------

IndexedCore::IndexedCore(const LoaderOptions& options, DatasetFacts facts, bool pads, Make make)
    : LoaderCore(options, std::move(facts)),
      plan_(facts_.size, options.batch_size, options.shard, pads),
      make_(std::move(make)) {}

AnyItem IndexedCore::batch_of(const RecordRange& records) const {
  AnyItem batch = make_(records);
  try {
    return finished(std::move(batch));
  } catch (...) {
    fail_at_batch(records);
  }
}

LoaderCore::Made IndexedCore::make_next() {
  if (std::exchange(epoch_over_, false)) return {};
  Made made;
  if (options_.prefetch == 0) {
    made.batch = item_or_throw(attempt([&] { return batch_of(plan_.records(position_)); }));
  } else {
    if (prefetcher_ && !prefetcher_->is_of_this_process()) prefetcher_.reset();
    if (!prefetcher_) {
      auto make = [this, start = position_](int64_t batch) {
        return batch_of(plan_.records(plan_.after(start, batch)));
      };
      prefetcher_ = std::make_unique<Prefetcher>(std::move(make), options_.prefetch, options_.num_threads);
    }
    made.ready = prefetcher_->ready();
    made.batch = in_time_or_reset(*prefetcher_, options_.timeout, prefetcher_);
  }
  position_ = plan_.after(position_);
  epoch_over_ = plan_.begins_epoch(position_);
  return made;
}

void IndexedCore::check(const LoaderState& state) const {
  if (!state.stream) return;
  fail(ErrorKind::invalid_argument, "restore",
       "the state of a Stream (a filter, flat_map, rebatch or pack), and this loader has none; its records are "
       "counted differently: start from the beginning, or give LoaderState{index}");
}

void IndexedCore::go_to(const LoaderState& state) {
  position_ = plan_.normalized(state.global_next_index);
  epoch_over_ = false;
}

// ---- streams --------------------------------------------------------------------------------------------------------

void check_parts(int64_t parts, const LoaderOptions& options) {
  rows_of_shard(options.batch_size, options.shard);
  if (options.batch_size % parts != 0)
    fail(ErrorKind::invalid_argument, "Loader",
         "a batch of {} rows of a stream in {} parts, expected a multiple of the parts", options.batch_size, parts);
  if (parts % options.shard.count != 0)
    fail(ErrorKind::invalid_argument, "Loader",
         "{} shards of a stream in {} parts, expected a number that divides the parts", options.shard.count, parts);
}

int64_t records_of_a_part(int64_t records, int64_t parts) {
  if (records % parts != 0)
    fail(ErrorKind::invalid_argument, "restore", "{} records of a stream in {} parts, expected a multiple of the parts",
         records, parts);
  return records / parts;
}

struct StreamCore::Running {
  std::atomic<bool> stopped = false;
  std::unique_ptr<BatchReader> reader;
  const int64_t forks_before = forks();
  std::unique_ptr<Prefetcher> prefetcher;  // declared last: destroyed before the objects that its thread uses

  ~Running() { stopped = true; }
  bool is_of_this_process() const { return forks_before == forks(); }
};

StreamCore::StreamCore(const LoaderOptions& options, DatasetFacts facts, StreamFactory factory)
    : LoaderCore(options, std::move(facts)), factory_(std::move(factory)) {}

// Stops the reader. After a fork, the child leaks it, because the threads and locks of the parent cannot be destroyed
// in the child.
void StreamCore::stop() {
  if (running_ && !running_->is_of_this_process()) static_cast<void>(new std::shared_ptr<Running>(running_));
  running_.reset();
}

std::shared_ptr<StreamCore::Running> StreamCore::opened_at(const StreamPosition& position) const {
  auto running = std::make_shared<Running>();
  running->reader = factory_.open(position, options_);
  return running;
}

LoaderCore::Made StreamCore::make_next() {
  if (running_ && !running_->is_of_this_process()) stop();
  if (!running_) running_ = opened_at(position_);
  const auto make = [this, running = running_.get()](int64_t) -> AnyItem {
    auto item = running->reader->next(running->stopped);
    try {
      item.batch = finished(std::move(item.batch));
    } catch (...) {
      fail_at_stream_batch(item.after);
    }
    return std::make_shared<BatchReader::Item>(std::move(item));
  };
  Made made;
  AnyItem next;
  if (options_.prefetch == 0) {
    const Outcome outcome = attempt([&] { return make(0); });
    if (std::holds_alternative<Failure>(outcome)) running_.reset();
    next = item_or_throw(outcome);
  } else {
    if (!running_->prefetcher) running_->prefetcher = std::make_unique<Prefetcher>(make, options_.prefetch, 1);
    made.ready = running_->prefetcher->ready();
    next = in_time_or_reset(*running_->prefetcher, options_.timeout, running_);
  }
  const auto& item = *std::static_pointer_cast<BatchReader::Item>(next);
  position_ = item.after;
  handed_out_ += item.records;
  made.batch = item.batch;
  return made;
}

void StreamCore::check(const LoaderState& state) const {
  const std::string missing = factory_.missing(state.stream.value_or(StreamPosition{}));
  if (!missing.empty()) fail(ErrorKind::invalid_argument, "restore", missing);
}

void StreamCore::go_to(const LoaderState& state) {
  StreamPosition position = state.stream.value_or(StreamPosition{});
  if (!state.stream && state.global_next_index > 0) {
    running_ = opened_at(position);
    try {
      position = running_->reader->skip(state.global_next_index);
    } catch (...) {
      running_.reset();
      throw;
    }
  }
  position_ = position;
  handed_out_ = state.global_next_index;
}

}  // namespace tessera::data::detail
