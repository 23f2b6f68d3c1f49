// Loader: the batches of a dataset, made ahead of use in threads and handed out in one fixed order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "data/datasets/collate.h"
#include "data/datasets/dataset.h"
#include "data/loader/divided_batches.h"
#include "data/loader/loader_core.h"
#include "data/loader/loader_state.h"
#include "data/loader/stream_batches.h"
#include "data/streams/any_stream.h"
#include "data/streams/next_iterator.h"
#include "sharding/base/moved_from.h"

namespace tessera::data {

namespace detail {

// The records of a range as a batch; an error names the record.
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
// A batch is any type: what the collate function returns for a std::vector<T> of records (data/datasets/collate.h).
// Global batch b of an epoch holds records [b * batch_size, (b + 1) * batch_size); a shard makes the index-th of count
// equal blocks of these rows, so the shards' batches one below the other are the global batch, row for row, for any
// number of shards. Records at the end of an epoch that do not fill a batch are dropped, or filled up with
// pad_last_batch(collate); after repeat() there are none. So every process makes the same number of steps.
//
// The order of the batches does not depend on prefetch or num_threads. The dataset and the collate function are called
// from the worker threads. Use a loader from one thread at a time. It can be moved; a moved-from loader gives Errors.
// After fork() the child's loader goes on with threads of its own.
//
// Errors of the constructor (invalid_argument): batch_size outside [1, 2^40], not divisible by shard.count, or larger
// than the dataset; shard.index outside [0, shard.count); prefetch < 0; num_threads < 1; a timeout without prefetch.
// The destructor waits for records that are being made: a source that may block forever needs a time limit of its own.
template <class Batch>
class Loader {
 public:
  template <class T, class Node, class Collate>
  Loader(Dataset<T, Node> dataset, Collate collate, const LoaderOptions& options = {})
      : core_(indexed(dataset.node(), detail::collator(std::move(collate)), options, dataset.describe())) {}

  // All processes read the whole stream (data/streams/stream.h), and each keeps its rows.
  template <class T, class Node, class Stage, class Collate>
  Loader(Stream<T, Node, Stage> stream, Collate collate, const LoaderOptions& options = {})
      : Loader(AnyStream<T>(stream), std::move(collate), options) {}
  template <class T, class Collate>
  Loader(AnyStream<T> stream, Collate collate, const LoaderOptions& options = {})
      : core_(streamed(stream, detail::collator(std::move(collate)), options)) {}

  // Each process reads the parts of its rows. Errors (invalid_argument): a batch size that is no multiple of the parts,
  // a number of shards that does not divide them.
  template <class T, class Collate>
  Loader(DividedStream<T> stream, Collate collate, const LoaderOptions& options = {})
      : core_(divided_core(stream, detail::collator(std::move(collate)), options)) {}

  // The next batch; std::nullopt at the end of an epoch of a finite dataset, after which the next epoch begins.
  //
  // Whatever the dataset throws arrives here, when the batch's turn comes, as an Error that names the record,
  //   [next] record 17 of epoch 0: <its words>
  // with the kind of the Error that was thrown, or `other`. The loader then still stands before this batch: the next
  // call tries again, and restore() can pass over the batch. Further errors: a batch that is not ready after
  // LoaderOptions::timeout (other; the next call goes on waiting); an epoch of a stream without a whole batch, and a
  // stream to which two passes over its data add nothing (invalid_argument); a thread cannot be started (other).
  std::optional<Batch> next() { return detail::moved_out<Batch>(core().next()); }

  // begin() makes the next batch, so a range-for runs from wherever the loader stands to the end of the epoch (forever
  // if the dataset is endless), and a second one over the epoch after it.
  using Iterator = detail::NextIterator<Batch>;
  Iterator begin() {
    return Iterator([this] { return next(); });
  }
  std::default_sentinel_t end() const { return {}; }

  int64_t batches_per_epoch() const { return core().batches_per_epoch(); }  // or `endless`; of a stream `unknown`

  // The epoch of the next batch, from 0; an endless dataset is one epoch (progress() counts its passes).
  int64_t epoch() const { return core().epoch(); }
  LoaderProgress progress() const { return core().progress(); }

  // Statistics so far: records per second, how long the trainer waited, how many batches were ready.
  const LoaderStats& stats() const { return core().stats(); }
  void reset_stats() { core().reset_stats(); }

  // The place of the next batch. Take it between batches, in the body of the loop as well: batches made ahead but not
  // handed out do not count.
  LoaderState state() const { return core().state(); }

  // Goes on from `state`: the batches that follow are those that would have followed there, on any number of shards.
  // Errors (invalid_argument), which leave the loader where it was: global_next_index outside [0, 2^62]; a state of
  // another dataset, saying what differs; a place in a stream that this one does not have.
  void restore(const LoaderState& state) { core().restore(state); }

  // The same loader with batches f(batch). f runs where batches are made, in the worker threads; after
  // map_on_consumer(), where they are handed out.
  template <class F>
  auto map(F f) && -> Loader<std::decay_t<std::invoke_result_t<const F&, Batch>>> {
    using Result = std::decay_t<std::invoke_result_t<const F&, Batch>>;
    core().finish_with([f = std::move(f)](AnyItem batch) -> AnyItem {
      return std::make_shared<Result>(std::invoke(f, std::move(*std::static_pointer_cast<Batch>(batch))));
    });
    return Loader<Result>(std::move(core_));
  }

  // The same loader with batches f(batch, place). f runs in the thread that calls next(): for what processes do
  // together. `batch` is a std::optional<Batch>, std::nullopt at the end of an epoch, and f returns a std::optional;
  // `place` is the state's global_next_index before the batch. If f throws, the loader stays before the batch.
  template <class F>
  auto map_on_consumer(
      F f) && -> Loader<typename std::invoke_result_t<const F&, std::optional<Batch>, int64_t>::value_type> {
    using Result = typename std::invoke_result_t<const F&, std::optional<Batch>, int64_t>::value_type;
    core().hand_out_with([f = std::move(f)](AnyItem batch, int64_t place) -> AnyItem {
      auto result = std::invoke(f, detail::moved_out<Batch>(batch), place);
      return result ? std::make_shared<Result>(*std::move(result)) : nullptr;
    });
    return Loader<Result>(std::move(core_));
  }

  // For data/batches/shard_batches.h, which changes the batches of a loader whatever their type is.
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

  template <class T, class Collate>
  static Core streamed(const AnyStream<T>& stream, Collate collate, const LoaderOptions& options) {
    const auto plan = stream.plan();
    detail::StreamCore::Places places;
    places.open = [plan, collate = std::move(collate)](const StreamMark& from, const LoaderOptions& o) {
      return std::make_unique<detail::StreamBatches<T, Collate>>(*plan, collate, from, o);
    };
    places.missing = [plan](const StreamMark& mark) { return plan->missing(mark); };
    places.passes = [plan](const StreamMark& mark) { return plan->passes(mark); };
    return std::make_unique<detail::StreamCore>(options, detail::DatasetFacts{0, 1, plan->describe()},
                                                std::move(places));
  }

  template <class T, class Collate>
  static Core divided_core(const DividedStream<T>& stream, Collate collate, const LoaderOptions& options) {
    const detail::Parts<T> parts = stream.plans();
    detail::check_parts(static_cast<int64_t>(parts.size()), options);
    detail::StreamCore::Places places;
    places.open = [parts, collate = std::move(collate)](const StreamMark& from, const LoaderOptions& o) {
      return std::make_unique<detail::DividedBatches<T, Collate>>(parts, collate, from, o);
    };
    places.missing = [parts](const StreamMark& mark) { return detail::missing_in_parts(mark, parts); };
    places.passes = [parts](const StreamMark& mark) { return detail::passes_of_parts(mark, parts); };
    return std::make_unique<detail::StreamCore>(options, detail::DatasetFacts{0, 1, stream.describe()},
                                                std::move(places));
  }

  Core core_;
};

template <class T, class Node, class Collate>
Loader(Dataset<T, Node>, Collate, const LoaderOptions& = {}) -> Loader<detail::batch_of<Collate, T>>;
template <class T, class Node, class Stage, class Collate>
Loader(Stream<T, Node, Stage>, Collate, const LoaderOptions& = {}) -> Loader<detail::batch_of<Collate, T>>;
template <class T, class Collate>
Loader(AnyStream<T>, Collate, const LoaderOptions& = {}) -> Loader<detail::batch_of<Collate, T>>;
template <class T, class Collate>
Loader(DividedStream<T>, Collate, const LoaderOptions& = {}) -> Loader<detail::batch_of<Collate, T>>;

}  // namespace tessera::data
