// Stream: records in order whose number is unknown in advance, for example after a filter, packing, or a mix.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "data/datasets/dataset.h"
#include "data/streams/pack.h"
#include "data/streams/stream_plan.h"
#include "data/streams/stream_transforms.h"
#include "sharding/base/error.h"

namespace tessera::data {

// Records T (copyable) in order, which filter(), flat_map(), rebatch() and pack() make of a Dataset. The length of an
// epoch is known only when its records are made, so a Stream has no size and no access by index: call shard, slice and
// repeat before these. A Stream is immutable, lazily evaluated, and a function of the dataset's order alone. It can
// resume at any record, and is the same for any number of threads and processes.
//
//   auto rows = mix({0.7, 0.3}, books.pack({.length = 2048}), code.pack({.length = 2048})).shuffle(10'000, seed);
//   Loader loader(rows, stack_as<PackedBatch>, {.batch_size = 32});
//
// A Loader runs maps, filters and flat maps in its threads if they directly follow the dataset. After another transform
// they run in order, in the thread that reads the records.
//
// In a Loader every process reads all records of the stream and keeps its own rows of each global batch. So every
// global batch is the same for any number of processes and threads, from any saved state. The cost: maps and filters
// run on every record in every process. Put expensive work that no filter needs into the Loader's collate function, or
// split the stream (`divided`).
template <class T>
class Stream {
 public:
  using value_type = T;
  using Plan = detail::StreamPlanPtr<T>;

  explicit Stream(Plan plan) : plan_(std::move(plan)) {}

  template <class F>
  auto map(F f) const {
    using Result = std::decay_t<std::invoke_result_t<const F&, T>>;
    return record_wise<Result, true>("map", [f = std::move(f)](T record, std::vector<Result>& outputs) {
      outputs.push_back(std::invoke(f, std::move(record)));
    });
  }

  // Keeps the records for which keep(record) is true.
  template <class F>
  Stream filter(F keep) const {
    return record_wise<T, true>("filter", [keep = std::move(keep)](T record, std::vector<T>& outputs) {
      if (std::invoke(keep, std::as_const(record))) outputs.push_back(std::move(record));
    });
  }

  // Returns all elements of each container f(record), which may be empty.
  template <class F>
  auto flat_map(F f) const {
    using Several = std::decay_t<std::invoke_result_t<const F&, T>>;
    using Result = typename Several::value_type;
    return record_wise<Result, false>("flat_map", [f = std::move(f)](T record, std::vector<Result>& outputs) {
      for (auto&& output : Several(std::invoke(f, std::move(record)))) outputs.push_back(std::move(output));
    });
  }

  // Groups records into std::vectors of `count`. Records at the end of an epoch that do not fill one are dropped.
  Stream<std::vector<T>> rebatch(int64_t count) const {
    detail::check_rebatch(count);
    return staged(detail::RebatchStage<T>{count});
  }

  // Packs documents (std::vector of tokens) into rows of one length (data/streams/pack.h).
  auto pack(const PackOptions& options) const {
    const auto pieces = [options](T document) { return detail::pieces_of(std::move(document), options); };
    return flat_map(pieces).staged(FirstFit<typename T::value_type>(options));
  }

  // Shuffles each `window` consecutive records. The order depends only on the seed, the epoch and the number of the
  // window. Keeps one window in memory. A loader that resumes inside a window reads it again from its beginning.
  // Error (invalid_argument): window < 1 or > 2^32.
  Stream shuffle(int64_t window, uint64_t seed) const {
    detail::check_stream_shuffle(window);
    return staged(detail::ShuffleStage<T>{window, seed});
  }

  // Takes the first records of each epoch, at most `count`. An endless stream is split into epochs of `count` records.
  // Error (invalid_argument): count < 1.
  Stream limit(int64_t count) const {
    detail::check_limit(count);
    return transformed(detail::Limit<T>{{}, count});
  }

  // Iterates over one epoch from its beginning: for (const T& record : stream).
  using Iterator = detail::NextIterator<T>;
  Iterator begin() const {
    return Iterator([reader = std::shared_ptr(plan()->open({}, 1))] { return reader->next(nullptr); });
  }
  std::default_sentinel_t end() const { return {}; }

  bool is_endless() const { return plan()->is_endless(); }
  std::string describe() const { return plan()->describe(); }
  const Plan& plan() const {
    if (!plan_) tessera::detail::fail_moved("Stream", "stream");
    return plan_;
  }

 private:
  template <class Transform>
  Stream<typename Transform::output> transformed(Transform transform) const {
    return Stream<typename Transform::output>(
        std::make_shared<detail::TransformPlan<Transform>>(std::move(transform), detail::StreamPlans<T>{plan()}));
  }
  template <class Stage>
  Stream<typename Stage::output> staged(Stage stage) const {
    return transformed(detail::Staged<Stage>{{}, std::move(stage)});
  }

  // Applies add(record, outputs), which appends the outputs of a record. It becomes part of the source's function if
  // the stream is only a source with such functions, so that the loader's threads run it.
  template <class Out, bool is_single, class Add>
  Stream<Out> record_wise(const char* name, Add add) const {
    const auto* source = dynamic_cast<const detail::SourcePlan<T>*>(plan().get());
    if (!source) return staged(detail::RecordStage<T, Out, is_single, Add>{name, std::move(add)});
    detail::StreamSource dataset = source->source;
    dataset.describe = [before = dataset.describe, name] { return detail::after(before(), name); };
    auto make = [before = source->make, add = std::move(add)](int64_t epoch, int64_t index) {
      std::vector<Out> outputs;
      for (auto&& record : before(epoch, index)) add(T(std::move(record)), outputs);
      return outputs;
    };
    return Stream<Out>(std::make_shared<detail::SourcePlan<Out>>(std::move(dataset), std::move(make)));
  }

  Plan plan_;
};

// Mixes streams in proportion to their weights, in the fixed pattern of turns of mix(weights, datasets...) in
// data/datasets/combine.h. An epoch ends when a stream has no record for its next turn. Then every stream that is not
// endless begins its next epoch, and endless ones continue. Error (invalid_argument): not as many weights as streams,
// or a weight that is not greater than 0.
template <class T>
Stream<T> mix(const std::vector<double>& weights, const std::vector<Stream<T>>& streams) {
  detail::check_weights(weights, streams.size());
  detail::StreamPlans<T> plans;
  for (const Stream<T>& stream : streams) plans.push_back(stream.plan());
  const detail::Mix<T> transform{{}, std::make_shared<const detail::Proportions>(weights)};
  return Stream<T>(std::make_shared<detail::TransformPlan<detail::Mix<T>>>(transform, std::move(plans)));
}
template <class T, std::same_as<Stream<T>>... More>
Stream<T> mix(const std::vector<double>& weights, const Stream<T>& first, const More&... more) {
  return mix(weights, std::vector<Stream<T>>{first, more...});
}

// A stream in parts, which different processes read: see divided().
template <class T>
class DividedStream {
 public:
  using value_type = T;
  using Plan = std::shared_ptr<const detail::DividedPlan<T>>;

  explicit DividedStream(Plan plan) : plan_(std::move(plan)) {
    for (const auto& part : plan_->parts) detail::check_part(part->is_endless());
  }

  std::string describe() const { return plan_->describe(); }
  const Plan& plan() const { return plan_; }

 private:
  Plan plan_;
};

// Splits a stream that is too expensive for every process to read completely, for example one that tokenizes and packs.
// `make` is called with the records i, i + parts, i + 2 parts, ... of the dataset for each i in [0, parts), and returns
// a stream of them.
//
//   auto rows = divided(64, documents.shuffle(seed).repeat(), [&](const auto& part) {
//     return part.map(tokenize).pack({.length = 2048}).shuffle(1'000, seed);
//   });
//   Loader loader(rows, stack_as<PackedBatch>, {.batch_size = 128, .shard = ShardByProcess(mesh_rules)});
//
// In a Loader row r of a global batch comes from part r * parts / batch_size. So each of n processes reads only the
// parts of its rows: 1/n of the records. `parts` is fixed and the number of processes is not: every global batch is the
// same for any number that divides `parts`. The batch size must be a multiple of `parts`. Each loader thread makes the
// rows of a different part.
//
// Each process has the positions of its own parts only. With shard_batches (data/batches/shard_batches.h), state()
// returns the joined state of all processes. Without it, save the state of each process, and restore the joined_state()
// of all these states (data/loader/loader_state.h).
// Errors (invalid_argument)
//   parts < 1
//   a dataset or stream that is not endless: an epoch would end at different batches on different processes (call
//     repeat() first)
template <class T, class Node, class Make>
auto divided(int64_t parts, const Dataset<T, Node>& dataset, const Make& make) {
  detail::check_divided(parts, dataset.is_endless());
  using Record = typename decltype(make(dataset.shard({0, parts})))::value_type;
  detail::DividedPlan<Record> plan;
  for (int64_t i = 0; i < parts; ++i) plan.parts.push_back(make(dataset.shard({i, parts})).plan());
  return DividedStream<Record>(std::make_shared<const detail::DividedPlan<Record>>(std::move(plan)));
}

// Implements the methods of Dataset that return a stream (declared in dataset.h).
template <class T, class Node>
Stream<T> as_stream(const Dataset<T, Node>& dataset) {
  detail::check_not_empty("stream", dataset.size());
  const auto node = std::make_shared<const Node>(dataset.node());
  auto make = [node](int64_t epoch, int64_t index) {
    std::vector<T> records;
    records.push_back(node->get(epoch, index));
    return records;
  };
  detail::StreamSource source{node->size(), node->round(), [node] { return node->describe(); }};
  return Stream<T>(std::make_shared<detail::SourcePlan<T>>(std::move(source), std::move(make)));
}
template <class T, class Node>
template <class F>
auto Dataset<T, Node>::filter(F keep) const {
  return as_stream(*this).filter(std::move(keep));
}
template <class T, class Node>
template <class F>
auto Dataset<T, Node>::flat_map(F f) const {
  return as_stream(*this).flat_map(std::move(f));
}
template <class T, class Node>
auto Dataset<T, Node>::rebatch(int64_t count) const {
  return flat_map([](T records) { return records; }).rebatch(count);
}
template <class T, class Node>
auto Dataset<T, Node>::pack(const PackOptions& options) const {
  return as_stream(*this).pack(options);
}

}  // namespace tessera::data
