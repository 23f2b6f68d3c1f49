// Dataset: an immutable, lazily evaluated chain from an index to a record.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "data/datasets/collate.h"
#include "data/datasets/nodes.h"
#include "data/datasets/shard_options.h"
#include "data/datasets/shuffle.h"

namespace tessera::data {

struct PackOptions;

// Records of type T by index. Every method returns a new dataset that holds this one. A dataset computes, reads and
// stores only what a requested record needs. A record is a function of (epoch, index) alone. So any thread may ask for
// any record, at any time and in any order, and a stopped program can resume anywhere.
//
//   auto tokens = windows(source, 257).shuffle(seed).repeat();
//
// An epoch is one pass over all records; shuffle() gives each epoch a different order. The order of the calls matters:
// shuffle first, then repeat (each pass is reshuffled), then shard, then batch. Functions passed to map() and similar
// methods are called from several threads at once.
//
// Node is the type of the complete chain, so that a record is computed without a virtual call: write `auto`. Dataset<T>
// holds any chain of records T, at the cost of one virtual call per record. Use it for members of structs and for
// vectors of datasets.
template <class T, class Node = detail::AnyNode<T>>
class Dataset {
 public:
  using value_type = T;

  explicit Dataset(Node node) : node_(std::move(node)) {}
  template <class Other>
  requires(std::same_as<Node, detail::AnyNode<T>> && !std::same_as<Other, Node>)
      Dataset(const Dataset<T, Other>& dataset)
      : node_(Node::of(dataset.node())) {}

  // Returns the dataset whose record `index`, in [0, size), is get(epoch, index). `size` may be `endless`. Set
  // `reshuffles` if epochs differ. `description` is the dataset's text in saved states. Error (invalid_argument): size
  // < 1, because an empty dataset always comes from an earlier mistake.
  template <class F>
  static auto from_function(int64_t size, F get, bool reshuffles = false, std::string description = "function") {
    detail::check_not_empty("from_function", size);
    if (size != endless) description = detail::description_of(description.c_str(), size);
    using Function = detail::FunctionNode<T, F>;
    return Dataset<T, Function>(Function{size, std::move(get), reshuffles, std::move(description)});
  }

  // Returns a dataset of the elements of a vector, which all copies of the dataset share.
  static auto from_vector(std::vector<T> records) {
    detail::check_not_empty("from_vector", static_cast<int64_t>(records.size()));
    using Vector = detail::VectorNode<T>;
    return Dataset<T, Vector>(Vector{std::make_shared<const std::vector<T>>(std::move(records))});
  }

  int64_t size() const { return node_.size(); }  // records in one epoch, at least 1; `endless` after repeat()
  bool is_endless() const { return size() == endless; }
  bool reshuffles() const { return node_.reorders() || node_.draws(); }  // whether epochs differ

  // Returns the chain as text, which saved states hold: "range(100) | shuffle(feistel_v1 5) | repeat()". Functions have
  // no name, so two chains that differ only in the function of a map have the same text.
  std::string describe() const { return node_.describe(); }

  // Returns record `index` of epoch `epoch`. An endless dataset has only epoch 0. Error (invalid_argument): index
  // outside [0, size()), or epoch < 0.
  T at(int64_t epoch, int64_t index) const {
    detail::check_index(epoch, index, size());
    return node_.get(epoch, index);
  }
  T operator[](int64_t index) const { return at(0, index); }

  // Applies f(record), which may return any type.
  template <class F>
  auto map(F f) const {
    return chain(detail::MapNode<Node, F>{{node_}, std::move(f)});
  }

  // Applies f(index, record), where `index` counts the records of an epoch of this dataset.
  template <class F>
  auto map_with_index(F f) const {
    return chain(detail::MapWithIndexNode<Node, F>{{node_}, std::move(f)});
  }

  // Applies f(record, random). `random` (Philox&, data/datasets/random.h) gives random numbers that depend only on the
  // seed, the epoch and the record's index in this dataset.
  template <class F>
  auto random_map(uint64_t seed, F f) const {
    return chain(detail::RandomMapNode<Node, F>{{node_}, seed, std::move(f)});
  }

  // `filter` keeps the records for which keep(record) is true; `flat_map` returns all elements of each container
  // f(record). Both return a Stream (data/streams/stream.h), whose length is not known in advance.
  template <class F>
  auto filter(F keep) const;
  template <class F>
  auto flat_map(F f) const;

  // Regroups a dataset of vectors of any sizes into vectors of `count` elements.
  auto rebatch(int64_t count) const;

  // Packs documents (vectors of tokens) into rows of one length (data/streams/pack.h).
  auto pack(const PackOptions& options) const;

  // Shuffles all records by a pseudo-random permutation (data/datasets/shuffle.h) of (seed, epoch), so that epochs
  // differ. shuffle(grain_v1{seed}) uses Grain's order.
  // Errors (invalid_argument): an endless dataset (shuffle first, then repeat); a size that the order does not support.
  auto shuffle(uint64_t seed) const { return shuffle(feistel_v1{seed}); }
  template <class Order>
  requires std::is_class_v<Order>
  auto shuffle(Order order) const {
    detail::check_shuffle(size());
    if (size() > 0) order.order(size(), 0);  // throws if the order does not support this size
    return chain(detail::ShuffleNode<Node, Order>{{node_}, std::move(order)});
  }

  // Shuffles each run of `window` consecutive records, so that adjacent records on disk stay near each other. It may
  // follow repeat(). Error (invalid_argument) if window < 1 or > 2^62.
  auto window_shuffle(int64_t window, uint64_t seed) const {
    detail::check_window_shuffle(window);
    return chain(detail::WindowShuffleNode<Node>{{node_}, window, seed});
  }

  // Concatenates all epochs into one endless epoch, or each `times` epochs into one.
  // Error (invalid_argument): times < 1; no record; a result of more than 2^63 - 2 records.
  auto repeat(int64_t times = endless) const {
    detail::check_repeat(times, size());
    return chain(detail::RepeatNode<Node>{{node_}, is_endless() ? 1 : times});
  }

  // Takes every step-th of the records [begin, end), the same records in every epoch. As in Grain, a slice of a
  // shuffled dataset takes the records and the order of epoch 0, so that disjoint slices stay disjoint. Call shuffle()
  // on the slice to give each epoch its own order. A slice with begin = end is empty: you can iterate over it, but not
  // repeat or load it.
  // Errors (invalid_argument): not 0 <= begin <= end <= size(); step < 1; a finite dataset that is both shuffled and
  // mapped at random (the slice would repeat epoch 0's random numbers).
  auto slice(int64_t begin, int64_t end, int64_t step = 1) const {
    detail::check_slice(begin, end, step, size(), node_.reorders() && node_.draws());
    return chain(detail::SliceNode<Node>{{node_}, begin, end, step});
  }

  // Takes every count-th record from shard.index on (strided_split). Shuffle first, then shard. A Loader needs no
  // sharded dataset: its option `shard` splits each global batch (data/loader/loader.h). For a contiguous part, slice
  // by even_split(size, shard) instead. Errors (invalid_argument): index outside [0, count); no record for this shard.
  auto shard(const ShardOptions& shard) const {
    detail::shard_size(size(), shard);
    return chain(detail::ShardNode<Node>{{node_}, shard});
  }

  // Returns batches: the result of `collate` for each `batch_size` records (data/datasets/collate.h,
  // data/batches/stack.h). The default is a std::vector of the records; `stack` makes arrays. Records at the end of an
  // epoch that do not fill a batch are dropped. pad_last_batch(collate) pads the last batch instead and marks the real
  // rows. Error (invalid_argument): batch_size < 1 or > 2^40, or larger than size() where the remainder is dropped.
  template <class Collate = AsVector>
  auto batch(int64_t batch_size, Collate collate = {}) const {
    using Collator = detail::Collator<Collate>;
    detail::batched_size(size(), batch_size, Collator::pads);
    return chain(detail::BatchNode<Node, Collator>{{node_}, batch_size, detail::collator(std::move(collate))});
  }

  // Keeps each record in memory once it is computed, for all copies of the chain. A record that is not computed yet
  // takes one pointer. Call it before shuffle() and other transforms that change between epochs. Errors
  // (invalid_argument): the dataset is endless; it is shuffled or mapped at random; its pointers alone do not fit into
  // memory.
  auto cache() const {
    detail::check_cache(size(), reshuffles());
    return chain(detail::CacheNode<Node>{{node_}, std::make_shared<detail::RecordCache<T>>(size())});
  }

  // Iterates over the records of epoch 0 in order: for (const auto& record : dataset).
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = T;
    using difference_type = std::ptrdiff_t;
    using pointer = void;
    using reference = T;

    Iterator(const Node* node, int64_t index) : node_(node), index_(index) {}
    T operator*() const { return node_->get(0, index_); }
    Iterator& operator++() {
      ++index_;
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.index_ == b.index_; }

   private:
    const Node* node_;
    int64_t index_;
  };
  Iterator begin() const { return {&node_, 0}; }
  Iterator end() const { return {&node_, size()}; }

  const Node& node() const { return node_; }

 private:
  template <class N>
  static Dataset<typename N::value_type, N> chain(N node) {
    return Dataset<typename N::value_type, N>(std::move(node));
  }

  Node node_;
};

namespace detail {
template <class S>
struct SourceNode {
  using value_type = std::decay_t<decltype(std::declval<const S&>()[int64_t{}])>;
  S source;
  int64_t size() const { return static_cast<int64_t>(source.size()); }
  int64_t round() const { return size(); }
  bool reorders() const { return false; }
  bool draws() const { return false; }
  std::string describe() const {
    if constexpr (requires {
                    { source.describe() } -> std::same_as<std::string>;
                  })
      return source.describe();
    else
      return description_of("source", size());
  }
  decltype(auto) get(int64_t, int64_t index) const { return source[index]; }
};
}  // namespace detail

// Returns the records of a source: any type with size() and operator[](int64_t) that threads may call concurrently. If
// it has describe() const -> std::string, saved states hold that text. The source is copied, so make it a cheap handle.
// Error (invalid_argument): no records.
template <class S>
auto from_source(S source) {
  using Node = detail::SourceNode<S>;
  detail::check_not_empty("from_source", static_cast<int64_t>(source.size()));
  return Dataset<typename Node::value_type, Node>(Node{std::move(source)});
}

// Returns the integers [0, size) as a dataset of indices.
inline auto range(int64_t size) {
  detail::check_not_empty("range", size);
  return Dataset<int64_t, detail::RangeNode>(detail::RangeNode{size});
}

namespace detail {
int64_t validation_size(int64_t size, double fraction, bool reshuffles);
template <class T, class Node>
using Sliced = Dataset<T, SliceNode<Node>>;
}  // namespace detail

template <class T, class Node>
struct TrainValidation {
  detail::Sliced<T, Node> train;
  detail::Sliced<T, Node> validation;
};

// Splits off the last `fraction` of the records for validation (rounded to the nearest number, at least one); the
// others are for training. The validation records are the end of the files and not a random sample, so that training
// and validation have no adjacent text. (Windows share one value at the boundary.)
// Errors (invalid_argument): fraction outside (0, 1); fewer than two records, or none left for training; an endless
// dataset; one that is already shuffled (both parts would get adjacent records).
template <class T, class Node>
TrainValidation<T, Node> train_validation_split(const Dataset<T, Node>& dataset, double fraction) {
  const int64_t held_out = detail::validation_size(dataset.size(), fraction, dataset.reshuffles());
  const int64_t cut = dataset.size() - held_out;
  return {dataset.slice(0, cut), dataset.slice(cut, dataset.size())};
}

}  // namespace tessera::data
