// The loader's place in the stream, its threads, and errors that name their record.
#include "data/loader_core.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "data/dataset.h"
#include "data/record_reader.h"
#include "nn/tree/tree.h"
#include "sharding/base/activity.h"

namespace tessera::data::detail {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

void require(bool condition, const std::string& message) {
  if (!condition) fail(ErrorKind::invalid_argument, "Loader", message);
}

[[noreturn]] void fail_with_words(const std::string& words) {
  const Failure failure = current_failure();
  fail(failure.kind, "next", words + ": " + failure.message);
}

[[noreturn]] void bad_state(const std::string& message) { fail(ErrorKind::invalid_argument, "restore", message); }

// The prefetcher's next item. After an error that was not only one of time, `owner` starts anew.
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
       "no batch within " + std::to_string(timeout.count()) +
           " ms (LoaderOptions::timeout); it is still being made, and another call waits on. Look at the dataset.");
}

LoaderOptions checked(const LoaderOptions& options) {
  require(options.prefetch >= 0, "prefetch " + std::to_string(options.prefetch) + ", expected 0 (no thread) or more");
  require(options.num_threads >= 1,
          "num_threads " + std::to_string(options.num_threads) + ", expected at least 1; prefetch = 0 uses none");
  require(options.timeout >= std::chrono::milliseconds(0) && options.timeout <= std::chrono::hours(24 * 365),
          "a timeout of " + std::to_string(options.timeout.count()) + " ms, expected 0 (none) to a year");
  require(options.timeout.count() == 0 || options.prefetch > 0,
          "a timeout without prefetch: next() then makes each batch itself. Set prefetch, or no timeout");
  rows_of_shard(options.batch_size, options.shard);
  return options;
}

}  // namespace

void fail_at_record(int64_t epoch, int64_t index) {
  fail_with_words("record " + std::to_string(index) + " of epoch " + std::to_string(epoch));
}

void fail_at_batch(const RecordRange& records) {
  const int64_t last = records.begin + records.count - 1;
  fail_with_words("the batch of records " + std::to_string(records.begin) + " to " + std::to_string(last) +
                  " of epoch " + std::to_string(records.epoch));
}

void fail_at_stream_record(const StreamMark& from) {
  fail_with_words("what comes of record " + std::to_string(from.input) + " of epoch " + std::to_string(from.epoch) +
                  " and those after it");
}

void fail_at_stream_batch(const StreamMark& before) {
  fail_with_words("the batch that ends before record " + std::to_string(before.input) + " of epoch " +
                  std::to_string(before.epoch));
}

void fail_no_batch(int64_t records, int64_t batch_size, int64_t epoch) {
  fail(ErrorKind::invalid_argument, "next",
       "epoch " + std::to_string(epoch) + " of the stream has " + std::to_string(records) +
           " records, fewer than one batch of " + std::to_string(batch_size) +
           "; use a smaller batch, repeat() before the stream's first word, or pad_last_batch()");
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
  if (hand_out_) hand_out(made.batch, before);
  stats_.seconds = seconds_since(began_);
  if (!made.batch) return nullptr;
  ++stats_.num_batches;
  stats_.num_records += options_.batch_size / options_.shard.count;
  stats_.mean_ready += (made.ready - stats_.mean_ready) / static_cast<double>(stats_.num_batches);
  return std::move(made.batch);
}

void LoaderCore::hand_out(AnyItem& batch, const LoaderState& before) {
  const bool is_end = !batch;
  const int64_t place = end_due_.value_or(before.global_next_index);
  end_due_.reset();
  try {
    batch = hand_out_(std::move(batch), place);
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
    bad_state("global_next_index " + std::to_string(state.global_next_index) + ", expected 0 to 2^62");
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

void LoaderCore::finish_with(Finish finish) {
  if (hand_out_) {
    return hand_out_with(
        [finish = std::move(finish)](AnyItem x, int64_t) { return x ? finish(std::move(x)) : nullptr; });
  }
  stop();
  if (finish_)
    finish_ = [first = finish_, then = std::move(finish)](AnyItem x) { return then(first(std::move(x))); };
  else
    finish_ = std::move(finish);
}

void LoaderCore::hand_out_with(HandOut hand_out) {
  if (hand_out_)
    hand_out_ = [first = hand_out_, then = std::move(hand_out)](AnyItem x, int64_t place) {
      return then(first(std::move(x), place), place);
    };
  else
    hand_out_ = std::move(hand_out);
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
  bad_state("the state of a Stream (a filter, flat_map, rebatch or pack), and this loader has none; its records are " +
            std::string("counted differently: start from the beginning, or give LoaderState{index}"));
}

void IndexedCore::go_to(const LoaderState& state) {
  position_ = plan_.normalized(state.global_next_index);
  epoch_over_ = false;
}

// ---- streams --------------------------------------------------------------------------------------------------------

struct StreamCore::Running {
  std::atomic<bool> stopped = false;
  std::unique_ptr<BatchReader> reader;
  const int64_t forks_before = forks();
  std::unique_ptr<Prefetcher> prefetcher;  // last: it ends before what its thread uses

  ~Running() { stopped = true; }
  bool is_of_this_process() const { return forks_before == forks(); }
};

StreamCore::StreamCore(const LoaderOptions& options, DatasetFacts facts, Places places)
    : LoaderCore(options, std::move(facts)), places_(std::move(places)) {}

// What another process was in the middle of when it forked cannot be taken apart: it is left as it is.
void StreamCore::stop() {
  if (running_ && !running_->is_of_this_process()) static_cast<void>(new std::shared_ptr<Running>(running_));
  running_.reset();
}

std::shared_ptr<StreamCore::Running> StreamCore::opened_at(const StreamMark& mark) const {
  auto running = std::make_shared<Running>();
  running->reader = places_.open(mark, options_);
  return running;
}

LoaderCore::Made StreamCore::make_next() {
  if (running_ && !running_->is_of_this_process()) stop();
  if (!running_) running_ = opened_at(mark_);
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
  mark_ = item.after;
  handed_out_ += item.records;
  made.batch = item.batch;
  return made;
}

void StreamCore::check(const LoaderState& state) const {
  const std::string missing = places_.missing(state.stream.value_or(StreamMark{}));
  if (!missing.empty()) bad_state(missing);
}

std::string missing_place(int64_t size, const StreamMark& mark) {
  const bool is_endless = size == endless;
  const bool is_place = mark.input <= (is_endless ? endless / 2 : size) && mark.epoch <= (is_endless ? 0 : endless / 2);
  if (is_place && mark.parts.empty() && std::min({mark.epoch, mark.input, mark.offset, mark.since}) >= 0) return "";
  return "the state continues at item " + std::to_string(mark.offset) + " of record " + std::to_string(mark.input) +
         " in epoch " + std::to_string(mark.epoch) + ", and the stream's dataset has " +
         (is_endless ? "one endless epoch" : std::to_string(size) + " records") +
         "; restore it with the dataset it was taken from";
}

double passes_at(int64_t size, int64_t round, const StreamMark& mark) {
  const double epochs = size == endless ? 0 : static_cast<double>(mark.epoch) * static_cast<double>(size);
  return (epochs + static_cast<double>(mark.input)) / static_cast<double>(round);
}

void StreamCore::go_to(const LoaderState& state) {
  StreamMark mark = state.stream.value_or(StreamMark{});
  if (!state.stream && state.global_next_index > 0) {
    running_ = opened_at(mark);
    try {
      mark = running_->reader->pass_over(state.global_next_index);
    } catch (...) {
      running_.reset();
      throw;
    }
  }
  mark_ = mark;
  handed_out_ = state.global_next_index;
}

// ---- records made ahead ---------------------------------------------------------------------------------------------

struct ChunkReader::Chunk {
  static constexpr int64_t records = 32;
  std::vector<Outcome> made;
};

namespace {

constexpr int chunks_per_thread = 2;
constexpr int max_threads = 1 << 20;

}  // namespace

ChunkReader::ChunkReader(int64_t size, const StreamMark& from,
                         std::function<AnyItem(int64_t epoch, int64_t index)> make, int threads)
    : prefetcher_(
          [size, from, make = std::move(make)](int64_t number) -> AnyItem {
            auto chunk = std::make_shared<Chunk>();
            for (int64_t i = 0; i < Chunk::records; ++i) {
              const int64_t at = number * Chunk::records + i;  // counted from the mark on
              const int64_t beyond = size == endless ? 0 : (at + from.input) / size;
              const int64_t index = size == endless ? from.input + at : (at + from.input) % size;
              chunk->made.push_back(attempt([&] { return make(from.epoch + beyond, index); }));
              if (std::holds_alternative<Failure>(chunk->made.back())) break;
            }
            return chunk;
          },
          chunks_per_thread* std::min(threads, max_threads), threads) {}

AnyItem ChunkReader::next() {
  if (!chunk_ || at_ == chunk_->made.size()) {
    chunk_ = std::static_pointer_cast<Chunk>(*prefetcher_.next());
    at_ = 0;
  }
  return item_or_throw(std::move(chunk_->made[at_++]));
}

}  // namespace tessera::data::detail
