// Dataset: an immutable, lazily evaluated chain from an index to a record.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "data/shard_options.h"
#include "data/shuffle.h"
#include "data/source.h"

namespace tessera::data {

// The size of a dataset that never ends.
inline constexpr int64_t endless = std::numeric_limits<int64_t>::max();

namespace detail {

// Each throws Error (bad_argument) naming both numbers where they do not fit.
void check_index(int64_t epoch, int64_t index, int64_t size);
void check_shuffle(int64_t size);
void check_slice(int64_t begin, int64_t end, int64_t size);
void check_repeat(int64_t times, int64_t size);
void check_not_empty(std::string_view verb, int64_t size);

int64_t repeated_size(int64_t size, int64_t times);
int64_t shard_size(int64_t size, const ShardOptions& shard);
int64_t batched_size(int64_t size, int64_t batch_size);
int64_t window_count(int64_t source_size, int64_t length, int64_t stride);
int64_t window_stride(int64_t length, int64_t stride);
int64_t validation_size(int64_t size, double fraction, bool reshuffles);

}  // namespace detail

// Records of type T by index. Every method returns a new dataset that shares this one; nothing is computed, read or
// stored until a record is asked for, and then only what it needs. A record is a function of (epoch, index) alone, so
// any thread may ask for any record at any time, in any order, and a program that stopped can go on anywhere.
//
//   auto tokens = windows(source, 257).shuffle(seed).repeat();
//
// An epoch is one pass over all records; shuffle() is what makes one differ from the next. The order of the words
// matters: shuffle first, then repeat (each round in an order of its own), then shard, then batch.
// The functions given to map() are called from several threads at once.
template <class T>
class Dataset {
 public:
  using value_type = T;
  using Get = std::function<T(int64_t epoch, int64_t index)>;

  // The dataset of get(epoch, index) for index in [0, size); size may be `endless`. `reshuffles`: the order differs
  // from epoch to epoch. Error (bad_argument) if size < 1: an empty dataset is always a mistake further up.
  static Dataset from_function(int64_t size, Get get, bool reshuffles = false) {
    detail::check_not_empty("from_function", size);
    return Dataset(size, std::move(get), reshuffles);
  }

  // The records of a vector, kept in memory once whatever the number of copies.
  static Dataset from_vector(std::vector<T> records) {
    detail::check_not_empty("from_vector", static_cast<int64_t>(records.size()));
    auto kept = std::make_shared<const std::vector<T>>(std::move(records));
    const auto size = static_cast<int64_t>(kept->size());
    auto get = [kept](int64_t, int64_t index) { return (*kept)[static_cast<size_t>(index)]; };
    return Dataset(size, std::move(get), false);
  }

  int64_t size() const { return node_->size; }  // records in one epoch, at least 1; `endless` after repeat()
  bool is_endless() const { return size() == endless; }
  bool reshuffles() const { return node_->reshuffles; }

  // Record `index` of epoch `epoch`. Error (bad_argument) unless index lies in [0, size()) and epoch >= 0; an endless
  // dataset has epoch 0 only.
  T at(int64_t epoch, int64_t index) const {
    detail::check_index(epoch, index, size());
    return node_->get(epoch, index);
  }
  T operator[](int64_t index) const { return at(0, index); }

  // f(record), whatever type that gives.
  template <class F>
  auto map(F f) const -> Dataset<std::decay_t<std::invoke_result_t<F, T>>> {
    using U = std::decay_t<std::invoke_result_t<F, T>>;
    auto get = [node = node_, f = std::move(f)](int64_t epoch, int64_t index) -> U {
      return f(node->get(epoch, index));
    };
    return derive<U>(size(), std::move(get));
  }

  // All records in a pseudo-random order (data/shuffle.h), another one in every epoch, chosen by (seed, epoch).
  // Error (bad_argument) for an endless dataset: shuffle first, then repeat.
  Dataset shuffle(uint64_t seed) const {
    detail::check_shuffle(size());
    auto get = [node = node_, seed](int64_t epoch, int64_t index) {
      return node->get(epoch, Permutation(node->size, epoch_seed(seed, epoch))(index));
    };
    return Dataset(size(), std::move(get), true);
  }

  // All epochs one after another as one endless epoch, or `times` of them as one.
  // Error (bad_argument) if times < 1 or the result has more than 2^63 - 2 records.
  Dataset repeat(int64_t times = endless) const {
    if (is_endless()) return *this;
    detail::check_repeat(times, size());
    const int64_t rounds = times == endless ? 1 : times;
    auto get = [node = node_, rounds](int64_t epoch, int64_t index) {
      return node->get(epoch * rounds + index / node->size, index % node->size);
    };
    return Dataset(detail::repeated_size(size(), times), std::move(get), reshuffles());
  }

  // Records [begin, end) of every epoch; after shuffle() these are other records in every epoch.
  // Error (bad_argument) unless 0 <= begin < end <= size().
  Dataset slice(int64_t begin, int64_t end) const {
    detail::check_slice(begin, end, size());
    const int64_t count = end == endless ? endless : end - begin;
    auto get = [node = node_, begin](int64_t epoch, int64_t index) { return node->get(epoch, begin + index); };
    return derive<T>(count, std::move(get));
  }

  // Every count-th record from shard.index on. All shards get size() / count records, rounded down, so that all
  // processes make the same number of steps; the last size() % count records of an epoch go to nobody.
  // Shuffle first, then shard. (A Loader shards by itself, and keeps global batches whole: data/loader.h.)
  // Errors (bad_argument): index outside [0, count), fewer records than shards.
  Dataset shard(ShardOptions shard) const {
    auto get = [node = node_, shard](int64_t epoch, int64_t index) {
      return node->get(epoch, index * shard.count + shard.index);
    };
    return derive<T>(detail::shard_size(size(), shard), std::move(get));
  }

  // `batch_size` records at a time; the remainder of an epoch, too few for a batch, is dropped.
  // Error (bad_argument) if batch_size < 1 or larger than size().
  Dataset<std::vector<T>> batch(int64_t batch_size) const {
    auto get = [node = node_, batch_size](int64_t epoch, int64_t index) {
      std::vector<T> batch;
      batch.reserve(static_cast<size_t>(batch_size));
      for (int64_t i = 0; i < batch_size; ++i) batch.push_back(node->get(epoch, index * batch_size + i));
      return batch;
    };
    return derive<std::vector<T>>(detail::batched_size(size(), batch_size), std::move(get));
  }

 private:
  template <class U>
  friend class Dataset;

  struct Node {
    int64_t size;
    Get get;
    bool reshuffles;
  };

  Dataset(int64_t size, Get get, bool reshuffles)
      : node_(std::make_shared<const Node>(Node{size, std::move(get), reshuffles})) {}

  template <class U, class F>
  Dataset<U> derive(int64_t size, F get) const {
    return Dataset<U>(size, std::move(get), reshuffles());
  }

  std::shared_ptr<const Node> node_;
};

// The integers [0, size): a dataset of indices.
Dataset<int64_t> range(int64_t size);

// The windows of `length` values of a source, one every `stride` values; the values after the last whole window are
// dropped. stride = 0 stands for length - 1 (1 where length is 1): the windows of a language model, which are one
// longer than its sequence, so that every value but the first is predicted once.
// Errors (bad_argument): length < 1, stride < 0, a source shorter than one window, naming both sizes.
template <SequenceSource S>
Dataset<std::vector<typename S::value_type>> windows(S source, int64_t length, int64_t stride = 0) {
  using Window = std::vector<typename S::value_type>;
  const int64_t count = detail::window_count(source.size(), length, stride);
  const int64_t step = detail::window_stride(length, stride);
  return Dataset<Window>::from_function(count, [source = std::move(source), length, step](int64_t, int64_t index) {
    Window window(static_cast<size_t>(length));
    source.read(index * step, std::span(window));
    return window;
  });
}

template <class T>
struct TrainValidation {
  Dataset<T> train;
  Dataset<T> validation;
};

// The first records for training and the last `fraction` of them (rounded to the nearest, at least one) for
// validation: the end of the files, not a sample, so that neighbouring text does not leak from one into the other
// (windows share one value at the boundary). Errors (bad_argument): fraction outside (0, 1), fewer than two records or
// none left for training, an endless dataset, one that is already shuffled (every epoch would mix the two).
template <class T>
TrainValidation<T> train_validation_split(const Dataset<T>& dataset, double fraction) {
  const int64_t held_out = detail::validation_size(dataset.size(), fraction, dataset.reshuffles());
  const int64_t cut = dataset.size() - held_out;
  return {dataset.slice(0, cut), dataset.slice(cut, dataset.size())};
}

}  // namespace tessera::data
