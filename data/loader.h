// Loader: the batches of a dataset, made ahead of use in threads and handed out in one fixed order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "data/batch_plan.h"
#include "data/dataset.h"
#include "data/shard_options.h"

namespace tessera::data {

struct LoaderOptions {
  // Records in a *global* batch: all processes together.
  int64_t batch_size = 32;
  // The part of every global batch that this loader makes: the index-th of count equal blocks of consecutive rows.
  ShardOptions shard = {};
  // Batches made ahead of use. 0: none, and no thread; each is made when it is asked for.
  int prefetch = 2;
  // Threads that make them; more than `prefetch` are not started.
  int threads = 1;
};

// Where a loader is: how many records, of all epochs and all shards, were handed out or passed over before the next
// batch. It is the same number on every process, and holds under another shard count, thread count or batch size.
struct LoaderState {
  int64_t global_next_index = 0;

  // {"global_next_index": 96}
  std::string to_json() const;
  // Error (bad_file) unless `text` is exactly such an object with a number >= 0.
  static LoaderState from_json(std::string_view text);

  friend bool operator==(const LoaderState&, const LoaderState&) = default;
};

namespace detail {

// To be called in a catch handler: throws the current exception again as an Error "[next] record 17 of epoch 0: its
// words", or the same about the collate function of a batch.
[[noreturn]] void fail_at_record(int64_t epoch, int64_t index);
[[noreturn]] void fail_at_batch(const RecordRange& records);

// The part of Loader that does not depend on the type of a batch.
class LoaderCore {
 public:
  using Make = std::function<std::shared_ptr<void>(const RecordRange&)>;

  LoaderCore(int64_t size, const LoaderOptions& options, Make make);
  LoaderCore(LoaderCore&&) noexcept;
  LoaderCore& operator=(LoaderCore&&) noexcept;
  ~LoaderCore();

  std::shared_ptr<void> next();  // null at the end of an epoch
  LoaderState state() const { return {position_}; }
  void restore(const LoaderState& state);
  const BatchPlan& plan() const { return plan_; }

 private:
  struct Threads;
  std::shared_ptr<void> make_next();

  BatchPlan plan_;
  LoaderOptions options_;
  Make make_;
  int64_t position_ = 0;
  bool epoch_over_ = false;
  std::unique_ptr<Threads> threads_;
};

}  // namespace detail

// Reads a dataset of records in batches:
//
//   Loader loader(tokens, token_batch, {.batch_size = 32});
//   for (const TokenBatch& batch : loader) { ... }
//
// A batch is any type: what the collate function returns for a std::vector<T> of records. Global batch b of an epoch
// holds records [b * batch_size, (b + 1) * batch_size) of the dataset; a shard makes the index-th of count equal blocks
// of these rows, so the shards' batches one below the other are the global batch, row for row, whatever their number.
// Records at the end of an epoch that do not fill a batch are dropped; after repeat() there are none such.
//
// The order of the batches does not depend on prefetch or threads. The dataset and the collate function are called
// from the worker threads. A loader is used from one thread at a time, and can be moved.
//
// Errors of the constructor (bad_argument): batch_size < 1, not divisible by shard.count, or larger than the dataset;
// shard.index outside [0, shard.count); prefetch < 0; threads < 1. The destructor waits for batches in the making.
template <class Batch>
class Loader {
 public:
  template <class T, class Collate>
  Loader(Dataset<T> dataset, Collate collate, const LoaderOptions& options = {})
      : core_(dataset.size(), options, maker(dataset, std::move(collate))) {}

  // The next batch; nothing at the end of an epoch of a finite dataset, after which the next epoch begins.
  //
  // Whatever the dataset throws arrives here, when the batch's turn comes, as an Error that names the record,
  //   [next] record 17 of epoch 0: <its words>
  // with the kind of the Error that was thrown, or `other`. The loader then still stands before this batch: asking
  // again tries again, and restore() can pass over it.
  std::optional<Batch> next() {
    const auto batch = std::static_pointer_cast<Batch>(core_.next());
    return batch ? std::optional<Batch>(std::move(*batch)) : std::nullopt;
  }

  // begin() makes the next batch, so a range-for runs from wherever the loader stands to the end of the epoch (forever
  // if the dataset is endless), and a second one over the epoch after it.
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    using pointer = const Batch*;
    using reference = const Batch&;

    explicit Iterator(Loader* loader) : loader_(loader), batch_(loader->next()) {}
    const Batch& operator*() const { return *batch_; }
    const Batch* operator->() const { return &*batch_; }
    Iterator& operator++() {
      batch_ = loader_->next();
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const Iterator& it, std::default_sentinel_t) { return !it.batch_.has_value(); }

   private:
    Loader* loader_;
    std::optional<Batch> batch_;
  };
  Iterator begin() { return Iterator(this); }
  std::default_sentinel_t end() const { return {}; }

  int64_t batches_per_epoch() const { return core_.plan().batches_per_epoch(); }  // `endless` for an endless dataset

  // The epoch of the next batch, from 0; an endless dataset is one epoch.
  int64_t epoch() const { return core_.plan().epoch_of(state().global_next_index); }

  // The place of the next batch. Take it between batches, in the body of the loop as well: batches made ahead but not
  // handed out do not count.
  LoaderState state() const { return core_.state(); }

  // Goes on from `state`: the batches that follow are those that would have followed there, on any number of shards.
  // The dataset must be the one that the state was taken from. Error (bad_argument) if global_next_index < 0.
  void restore(const LoaderState& state) { core_.restore(state); }

 private:
  template <class T, class Collate>
  static detail::LoaderCore::Make maker(Dataset<T> dataset, Collate collate) {
    return [dataset = std::move(dataset),
            collate = std::move(collate)](const detail::RecordRange& range) -> std::shared_ptr<void> {
      std::vector<T> records;
      records.reserve(static_cast<size_t>(range.count));
      for (int64_t i = range.begin; i < range.begin + range.count; ++i) {
        try {
          records.push_back(dataset.at(range.epoch, i));
        } catch (...) {
          detail::fail_at_record(range.epoch, i);
        }
      }
      try {
        return std::make_shared<Batch>(collate(std::as_const(records)));
      } catch (...) {
        detail::fail_at_batch(range);
      }
    };
  }

  detail::LoaderCore core_;
};

template <class T, class Collate>
Loader(Dataset<T>, Collate, const LoaderOptions& = {})
    -> Loader<std::decay_t<std::invoke_result_t<Collate, const std::vector<T>&>>>;

}  // namespace tessera::data
