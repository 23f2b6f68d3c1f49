// AnyStream: any stream of records, and what is made of whole streams: shuffles, limits, mixes, divided streams.
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/datasets/dataset.h"
#include "data/streams/next_iterator.h"
#include "data/streams/stream_plans.h"

namespace tessera::data {

// Records T of any Stream behind one virtual call a record: what Stream::shuffle, Stream::limit and mix give, and what
// streams of different chains have in common. As a Stream it is immutable, read in order, resumed at any record, and
// the same for any number of threads and processes.
//
//   auto rows = mix({0.7, 0.3}, books.pack({.length = 2048}), code.pack({.length = 2048})).shuffle(10'000, seed);
//   Loader loader(rows, stack_as<PackedBatch>, {.batch_size = 32});
template <class T>
class AnyStream {
 public:
  using value_type = T;
  using Plan = std::shared_ptr<const detail::StreamPlan<T>>;

  template <class Node, class Stage>
  AnyStream(const Stream<T, Node, Stage>& stream)
      : plan_(std::make_shared<detail::ChainPlan<Node, Stage>>(stream.node(), stream.stage())) {}
  explicit AnyStream(Plan plan) : plan_(std::move(plan)) {}

  // f(record), called where records are read, in their order.
  template <class F>
  auto map(F f) const {
    using Result = std::decay_t<std::invoke_result_t<const F&, T>>;
    return AnyStream<Result>(std::make_shared<detail::MappedPlan<T, F>>(plan_, std::move(f)));
  }

  // Each `window` records one after another in a random order, which depends on the seed, the epoch and the place of
  // the window alone. Keeps a window in memory, and a loader that goes on inside one reads it again from its beginning.
  // Error (invalid_argument) if window < 1 or > 2^32.
  AnyStream shuffle(int64_t window, uint64_t seed) const {
    detail::check_stream_shuffle(window);
    return AnyStream(std::make_shared<detail::ShuffledPlan<T>>(plan_, window, seed));
  }

  // At most `count` records in each epoch, those at its beginning. Of an endless stream each `count` records are an
  // epoch. Error (invalid_argument) if count < 1.
  AnyStream limit(int64_t count) const {
    detail::check_limit(count);
    return AnyStream(std::make_shared<detail::LimitedPlan<T>>(plan_, count));
  }

  // One epoch from its beginning, as Stream's.
  using Iterator = detail::NextIterator<T>;
  Iterator begin() const {
    return Iterator([reader = std::shared_ptr(plan_->open({}, 1))] { return reader->next(nullptr); });
  }
  std::default_sentinel_t end() const { return {}; }

  bool is_endless() const { return plan_->is_endless(); }
  std::string describe() const { return plan_->describe(); }
  const Plan& plan() const { return plan_; }

 private:
  Plan plan_;
};

template <class T, class Node, class Stage>
AnyStream(const Stream<T, Node, Stage>&) -> AnyStream<T>;

template <class T, class Node, class Stage>
AnyStream<T> Stream<T, Node, Stage>::shuffle(int64_t window, uint64_t seed) const {
  return AnyStream<T>(*this).shuffle(window, seed);
}
template <class T, class Node, class Stage>
AnyStream<T> Stream<T, Node, Stage>::limit(int64_t count) const {
  return AnyStream<T>(*this).limit(count);
}

// Records of several streams in the proportion of their weights, in the fixed pattern of turns of mix(weights,
// datasets...) in data/datasets/combine.h. An epoch ends where a stream has no record for its next turn; then every
// stream that is not endless begins its next epoch, and endless ones go on. Error (invalid_argument) unless there are
// as many weights as streams, all greater than 0.
template <class T>
AnyStream<T> mix(const std::vector<double>& weights, const std::vector<AnyStream<T>>& streams) {
  detail::check_weights(weights, streams.size());
  std::vector<typename AnyStream<T>::Plan> plans;
  for (const AnyStream<T>& stream : streams) plans.push_back(stream.plan());
  return AnyStream<T>(std::make_shared<detail::MixedPlan<T>>(weights, std::move(plans)));
}
template <class First, class... More>
requires requires(const First& first, const More&... more) {
  AnyStream(first);
  (AnyStream(more), ...);
}
auto mix(const std::vector<double>& weights, const First& first, const More&... more) {
  using T = typename First::value_type;
  return mix(weights, std::vector<AnyStream<T>>{AnyStream<T>(first), AnyStream<T>(more)...});
}

// A stream in parts that different processes read, each a part of the work: see divided().
template <class T>
class DividedStream {
 public:
  using value_type = T;
  explicit DividedStream(std::vector<AnyStream<T>> parts);

  const std::vector<AnyStream<T>>& parts() const { return parts_; }
  detail::Parts<T> plans() const {
    detail::Parts<T> plans;
    for (const AnyStream<T>& part : parts_) plans.push_back(part.plan());
    return plans;
  }
  std::string describe() const {
    return "divided(" + std::to_string(parts_.size()) + ", " + parts_.front().describe() + ")";
  }

 private:
  std::vector<AnyStream<T>> parts_;
};

template <class T>
DividedStream<T>::DividedStream(std::vector<AnyStream<T>> parts) : parts_(std::move(parts)) {
  for (const AnyStream<T>& part : parts_) detail::check_part(part.is_endless());
}

// Streams that cost too much for every process to read all, as those that tokenize and pack: `make` is given the
// records i, i + parts, i + 2 parts, ... of the dataset and makes a stream of them, for each i in [0, parts).
//
//   auto rows = divided(64, documents.shuffle(seed).repeat(), [&](const auto& part) {
//     return part.map(tokenize).pack({.length = 2048}).shuffle(1'000, seed);
//   });
//   Loader loader(rows, stack_as<PackedBatch>, {.batch_size = 128, .shard = ShardByProcess(mesh_rules)});
//
// In a Loader row r of a global batch comes from part r * parts / batch_size, so a process reads only the parts of its
// rows: of n processes, each an n-th of the records. `parts` is fixed and the number of processes is not: every global
// batch is the same under any number that divides `parts`. The batch size has to be a multiple of `parts`. Of several
// threads, each makes the rows of another part.
//
// Only the process that reads a part has its position. state() of a loader that shard_batches
// (data/batches/shard_batches.h) returns joins the states of all processes; else save each process's state and restore
// joined_state() of all (data/loader/loader_state.h). Errors (invalid_argument): parts < 1, a dataset or stream that is
// not endless (an epoch would end at different batches for different processes: repeat() first).
template <class T, class Node, class Make>
auto divided(int64_t parts, const Dataset<T, Node>& dataset, const Make& make) {
  detail::check_divided(parts, dataset.is_endless());
  using Part = decltype(make(dataset.shard({0, parts})));
  using Record = typename Part::value_type;
  std::vector<AnyStream<Record>> streams;
  for (int64_t i = 0; i < parts; ++i) streams.emplace_back(AnyStream<Record>(make(dataset.shard({i, parts}))));
  return DividedStream<Record>(std::move(streams));
}

}  // namespace tessera::data
