// Loader: the batches of a dataset, made ahead of use in threads and returned in one fixed order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "data/datasets/collate.h"
#include "data/datasets/dataset.h"
#include "data/loader/loader_core.h"
#include "data/loader/loader_state.h"
#include "data/loader/stream_batches.h"
#include "data/streams/stream.h"
#include "sharding/base/error.h"

namespace tessera::data {

namespace detail {

// Returns the records of a range as a batch; an error names the record.
template <class Node, class Collate>
AnyItem make_batch(const Node& node, const Collate& collate, const RecordRange& range) {
  using T = typename Node::value_type;
  std::vector<T> records;
  try {
    records.reserve(static_cast<size_t>(range.count));
  } catch (...) {
    fail_at_batch(range);
  }
  int64_t index = range.begin;
  try {
    for (; index < range.begin + range.count; ++index)
      records.push_back(node.get(range.epoch, std::min(index, range.last)));
  } catch (...) {
    fail_at_record(range.epoch, std::min(index, range.last));
  }
  try {
    return std::make_shared<batch_of<Collate, T>>(collate(std::move(records), range.valid));
  } catch (...) {
    fail_at_batch(range);
  }
}

template <class Batch>
std::optional<Batch> moved_out(const AnyItem& item) {
  return item ? std::optional<Batch>(std::move(*std::static_pointer_cast<Batch>(item))) : std::nullopt;
}

}  // namespace detail

// Reads a dataset or a stream of records in batches:
//
//   Loader loader(tokens, token_batch, {.batch_size = 32});
//   for (const TokenBatch& batch : loader) { ... }
//
// A batch can have any type: the collate function makes it of a std::vector<T> of records (data/datasets/collate.h).
// Global batch b of an epoch holds records [b * batch_size, (b + 1) * batch_size). A shard makes block `index` of
// `count` equal blocks of these rows. The shards' batches, concatenated, are the global batch for any number of shards.
// Records at the end of an epoch that do not fill a batch are dropped, or padded with pad_last_batch(collate); after
// repeat() there are none. So every process makes the same number of steps.
//
// The order of the batches does not depend on prefetch or num_threads. The worker threads call the dataset and the
// collate function. Use a loader from one thread at a time. A loader can be moved; a moved-from loader throws. After
// fork() the child's loader starts its own threads.
//
// Errors of the constructor (invalid_argument)
//   batch_size outside [1, 2^40], not divisible by shard.count, or larger than the dataset
//   shard.index outside [0, shard.count)
//   prefetch < 0; num_threads < 1; a timeout without prefetch
// The destructor waits for records that are being made: a source that may block forever needs its own time limit.
template <class Batch>
class Loader {
 public:
  template <class T, class Node, class Collate>
  Loader(Dataset<T, Node> dataset, Collate collate, const LoaderOptions& options = {})
      : core_(indexed(dataset.node(), detail::collator(std::move(collate)), options, dataset.describe())) {}

  // Reads a stream (data/streams/stream.h): all processes read all records of the stream, and each keeps its rows.
  template <class T, class Collate>
  Loader(Stream<T> stream, Collate collate, const LoaderOptions& options = {})
      : core_(streamed<detail::StreamBatches<T, detail::Collator<Collate>>>(
            stream.plan(), detail::collator(std::move(collate)), options)) {}

  // Reads a divided stream: each process reads the parts of its rows.
  // Errors (invalid_argument): a batch size that is not a multiple of the number of parts; a number of parts that is
  // not a multiple of the number of shards.
  template <class T, class Collate>
  Loader(DividedStream<T> stream, Collate collate, const LoaderOptions& options = {})
      : core_(streamed<detail::DividedBatches<T, detail::Collator<Collate>>>(
            stream.plan(), detail::collator(std::move(collate)), options)) {}

  // Returns the next batch, or std::nullopt at the end of an epoch of a finite dataset, after which the next epoch
  // begins.
  //
  // If the dataset throws, next() throws at that batch's turn. The Error names the record:
  //   [next] record 17 of epoch 0: <its message>
  // It has the kind of the Error that was thrown, or `other`. The loader's position does not change: the next call
  // tries the batch again, and restore() can skip it.
  // Further errors
  //   other: a batch that is not ready after LoaderOptions::timeout (the next call continues to wait); a thread cannot
  //     be started
  //   invalid_argument: an epoch of a stream without a complete batch; a stream that returns no record in two passes
  //     over its data (after other transforms: in ten million records)
  std::optional<Batch> next() { return detail::moved_out<Batch>(core().next()); }

  // Makes the next batch. A range-for runs from the loader's position to the end of the epoch (forever if the dataset
  // is endless); a second one runs over the next epoch.
  using Iterator = detail::NextIterator<Batch>;
  Iterator begin() {
    return Iterator([this] { return next(); });
  }
  std::default_sentinel_t end() const { return {}; }

  int64_t batches_per_epoch() const { return core().batches_per_epoch(); }  // or `endless`; `unknown` for a stream

  // Returns the epoch of the next batch, from 0. An endless dataset is one epoch (progress() counts its passes).
  int64_t epoch() const { return core().epoch(); }
  LoaderProgress progress() const { return core().progress(); }

  // Returns the statistics so far: records per second, how long the trainer waited, how many batches were ready.
  const LoaderStats& stats() const { return core().stats(); }
  void reset_stats() { core().reset_stats(); }

  // Returns the position of the next batch. Call it between batches, also inside the loop over batches: batches that
  // were made ahead but not returned do not count. After the last batch of an epoch, that is the next epoch's first
  // batch, so a loader that restores the state does not return the end of the epoch again. (Streams do, without
  // pad_last_batch.)
  LoaderState state() const { return core().state(); }

  // Resumes from `state`: the next batches are those that would have followed there, on any number of shards.
  // Errors (invalid_argument), which do not change the loader's position: global_next_index outside [0, 2^62]; a state
  // of another dataset (the message names the difference); a position that this loader's stream does not have.
  void restore(const LoaderState& state) { core().restore(state); }

  // Returns the same loader with batches f(batch). The worker threads call f. After map_on_consumer(), the thread that
  // calls next() does.
  template <class F>
  auto map(F f) && -> Loader<std::decay_t<std::invoke_result_t<const F&, Batch>>> {
    using Result = std::decay_t<std::invoke_result_t<const F&, Batch>>;
    core().on_produce([f = std::move(f)](AnyItem batch) -> AnyItem {
      return std::make_shared<Result>(std::invoke(f, std::move(*std::static_pointer_cast<Batch>(batch))));
    });
    return Loader<Result>(std::move(core_));
  }

  // Returns the same loader with batches f(batch, place). f runs in the thread that calls next(): use it for collective
  // calls. `batch` is a std::optional<Batch>, std::nullopt at the end of an epoch, and f returns a std::optional.
  // `place` is the state's global_next_index before the batch. If f throws, the loader's position does not change.
  template <class F>
  auto map_on_consumer(
      F f) && -> Loader<typename std::invoke_result_t<const F&, std::optional<Batch>, int64_t>::value_type> {
    using Result = typename std::invoke_result_t<const F&, std::optional<Batch>, int64_t>::value_type;
    core().on_consume([f = std::move(f)](AnyItem batch, int64_t place) -> AnyItem {
      auto result = std::invoke(f, detail::moved_out<Batch>(batch), place);
      return result ? std::make_shared<Result>(*std::move(result)) : nullptr;
    });
    return Loader<Result>(std::move(core_));
  }

  // Returns the core, so that data/batches/shard_batches.h can change the batches of a loader of any batch type.
  friend detail::LoaderCore& core_of(Loader& loader) { return loader.core(); }

 private:
  template <class>
  friend class Loader;
  using Core = std::unique_ptr<detail::LoaderCore>;

  explicit Loader(Core core) : core_(std::move(core)) {}

  detail::LoaderCore& core() const {
    if (!core_) tessera::detail::fail_moved("Loader", "loader");
    return *core_;
  }

  template <class Node, class Collate>
  static Core indexed(Node node, Collate collate, const LoaderOptions& options, std::string words) {
    detail::check_not_empty("Loader", node.size());
    const detail::DatasetFacts facts{node.size(), node.round(), std::move(words)};
    return std::make_unique<detail::IndexedCore>(
        options, facts, Collate::pads,
        [node = std::move(node), collate = std::move(collate)](const detail::RecordRange& range) {
          return detail::make_batch(node, collate, range);
        });
  }

  template <class Batches, class Plan, class Collate>
  static Core streamed(const Plan& plan, Collate collate, const LoaderOptions& options) {
    Batches::check(*plan, options);
    detail::StreamCore::StreamFactory factory;
    factory.open = [plan, collate = std::move(collate)](const StreamPosition& from, const LoaderOptions& o) {
      return std::make_unique<Batches>(*plan, collate, from, o);
    };
    factory.missing = [plan](const StreamPosition& position) { return plan->missing(position); };
    factory.passes = [plan](const StreamPosition& position) { return plan->passes(position); };
    return std::make_unique<detail::StreamCore>(options, detail::DatasetFacts{0, 1, plan->describe()},
                                                std::move(factory));
  }

  Core core_;
};

template <class T, class Node, class Collate>
Loader(Dataset<T, Node>, Collate, const LoaderOptions& = {}) -> Loader<detail::batch_of<Collate, T>>;
template <class T, class Collate>
Loader(Stream<T>, Collate, const LoaderOptions& = {}) -> Loader<detail::batch_of<Collate, T>>;
template <class T, class Collate>
Loader(DividedStream<T>, Collate, const LoaderOptions& = {}) -> Loader<detail::batch_of<Collate, T>>;

}  // namespace tessera::data
