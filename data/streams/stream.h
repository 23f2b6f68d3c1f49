// Stream: records in order, whose number is known only when they are made: filters, flat maps, packing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/datasets/dataset.h"
#include "data/streams/next_iterator.h"
#include "data/streams/pack.h"
#include "data/streams/stream_mark.h"

namespace tessera::data {

template <class T>
class AnyStream;

namespace detail {

// Links that turn each input record into a vector of items: none, one or more.
template <class N>
struct Singles : ChildNode<N> {
  using item = record<N>;
  using value_type = std::vector<item>;
  std::string describe() const { return this->parent.describe(); }
  value_type get(int64_t epoch, int64_t index) const {
    value_type items;
    items.push_back(this->parent.get(epoch, index));
    return items;
  }
};

template <class N, class F>
struct FanMap : ChildNode<N> {
  using item = std::decay_t<std::invoke_result_t<const F&, typename N::item>>;
  using value_type = std::vector<item>;
  F f;
  std::string describe() const { return this->after("map"); }
  value_type get(int64_t epoch, int64_t index) const {
    value_type items;
    for (auto&& item : this->parent.get(epoch, index)) items.push_back(std::invoke(f, std::move(item)));
    return items;
  }
};

template <class N, class F>
struct FanFilter : ChildNode<N> {
  using item = typename N::item;
  using value_type = std::vector<item>;
  F keep;
  std::string describe() const { return this->after("filter"); }
  value_type get(int64_t epoch, int64_t index) const {
    value_type items = this->parent.get(epoch, index);
    std::erase_if(items, [&](const item& x) { return !std::invoke(keep, x); });
    return items;
  }
};

template <class N, class F>
struct FanFlatMap : ChildNode<N> {
  using Several = std::decay_t<std::invoke_result_t<const F&, typename N::item>>;
  using item = typename Several::value_type;
  using value_type = std::vector<item>;
  F f;
  std::string describe() const { return this->after("flat_map"); }
  value_type get(int64_t epoch, int64_t index) const {
    value_type items;
    for (auto&& item : this->parent.get(epoch, index))
      for (auto&& part : Several(std::invoke(f, std::move(item)))) items.push_back(std::move(part));
    return items;
  }
};

// A stage takes items one after another and gives records. try_push(item) is false, and does not take the item, while
// records wait for pop(); finish() makes records of the items left at the end of an epoch; empty(): it holds nothing.
template <class T>
struct Flat {
  using input = T;
  using value_type = T;
  std::optional<T> held = std::nullopt;

  bool try_push(T& item) {
    if (held) return false;
    held = std::move(item);
    return true;
  }
  std::optional<T> pop() { return std::exchange(held, std::nullopt); }
  void finish() {}
  bool empty() const { return !held; }
  std::string describe() const { return ""; }
};

template <class T>
struct Group {
  using input = T;
  using value_type = std::vector<T>;
  int64_t count = 1;
  std::vector<T> held = {};

  bool full() const { return static_cast<int64_t>(held.size()) == count; }
  bool try_push(T& item) {
    if (full()) return false;
    held.push_back(std::move(item));
    return true;
  }
  std::optional<value_type> pop() {
    if (!full()) return std::nullopt;
    return std::exchange(held, {});
  }
  void finish() {
    if (!full()) held.clear();
  }
  bool empty() const { return held.empty(); }
  std::string describe() const { return " | rebatch(" + std::to_string(count) + ")"; }
};

template <class Stage, class F>
struct Mapped {
  using input = typename Stage::input;
  using value_type = std::decay_t<std::invoke_result_t<const F&, typename Stage::value_type>>;
  Stage stage;
  F f;

  bool try_push(input& item) { return stage.try_push(item); }
  std::optional<value_type> pop() {
    auto item = stage.pop();
    return item ? std::optional<value_type>(std::invoke(f, std::move(*item))) : std::nullopt;
  }
  void finish() { stage.finish(); }
  bool empty() const { return stage.empty(); }
  std::string describe() const { return stage.describe() + " | map"; }
};

// After how many input records in a row that give no record reading on is an Error.
int64_t max_barren(int64_t size, int64_t round);
[[noreturn]] void fail_barren(int64_t records, int64_t epoch);
[[noreturn]] void fail_stopped();
[[noreturn]] void fail_misplaced(const StreamMark& mark);

// Reads a stream from any mark on: calls fetch(epoch, index) in order and passes the items through the stage.
template <class Node, class Stage>
class StreamReader {
 public:
  using Fan = typename Node::value_type;
  using Fetch = std::function<Fan(int64_t epoch, int64_t index)>;

  StreamReader(const Stage& stage, int64_t size, int64_t round, Fetch fetch)
      : fresh_(stage), stage_(stage), size_(size), max_barren_(max_barren(size, round)), fetch_(std::move(fetch)) {}

  // Where the next record lies.
  StreamMark mark() const { return mark_; }

  void seek(const StreamMark& mark) {
    stage_ = fresh_;
    mark_ = cursor_ = {mark.epoch, mark.input, mark.offset, 0};
    fan_.reset();
    finished_ = in_stage_ = false;
    for (int64_t i = 1; i <= mark.since; ++i)
      if (!next() || mark_.since != i) fail_misplaced(mark);
  }

  // Whether next() is in the stage, making a record from items that were read (and not reading).
  bool is_in_stage() const { return in_stage_; }

  // The next record; std::nullopt at the end of an epoch, after which the next epoch begins. `stop`, if given, becomes
  // true when nobody waits for the record any more; then next() throws.
  std::optional<typename Stage::value_type> next(const std::atomic<bool>* stop = nullptr) {
    for (int64_t barren = 0;;) {
      in_stage_ = true;
      auto item = stage_.pop();
      in_stage_ = false;
      if (item) {
        if (stage_.empty())
          mark_ = cursor_;
        else
          ++mark_.since;
        return item;
      }
      if (stop && stop->load(std::memory_order_relaxed)) fail_stopped();
      if (cursor_.input == size_) {
        if (!finished_) {
          finished_ = true;
          stage_.finish();
          continue;
        }
        begin_epoch(cursor_.epoch + 1);
        return std::nullopt;
      }
      if (!fan_) {
        if (++barren > max_barren_) fail_barren(barren - 1, cursor_.epoch);
        fan_ = fetch_(cursor_.epoch, cursor_.input);
        if (!fan_->empty()) barren = 0;
        if (cursor_.offset > 0 && cursor_.offset >= static_cast<int64_t>(fan_->size())) fail_misplaced(cursor_);
      }
      push();
    }
  }

 private:
  void push() {
    if (cursor_.offset < static_cast<int64_t>(fan_->size()) &&
        stage_.try_push((*fan_)[static_cast<size_t>(cursor_.offset)]))
      ++cursor_.offset;
    if (cursor_.offset < static_cast<int64_t>(fan_->size())) return;
    fan_.reset();
    cursor_ = {cursor_.epoch, cursor_.input + 1, 0, 0};
    if (stage_.empty()) mark_ = cursor_;
  }

  void begin_epoch(int64_t epoch) {
    stage_ = fresh_;
    finished_ = false;
    mark_ = cursor_ = {epoch, 0, 0, 0};
  }

  Stage fresh_, stage_;
  int64_t size_, max_barren_;
  Fetch fetch_;
  StreamMark mark_, cursor_;  // where the next record begins; the next item to push
  std::optional<Fan> fan_;    // of input record cursor_.input
  bool finished_ = false, in_stage_ = false;
};

}  // namespace detail

// Records (copyable) one after another: what filter(), flat_map(), rebatch() and pack() make of a Dataset. How many an
// epoch has is known only when they are made, so a Stream has no size and no access by index: call shuffle, shard,
// slice and repeat before these. Immutable, lazily evaluated, and a function of the dataset's order alone; a Loader
// runs the maps and filters in its threads.
//
// In a Loader every process reads the whole stream and keeps its own rows of each global batch, so every global batch
// is the same under any number of processes and threads, from any saved state. The price is that maps and filters run
// on every record in every process: put costly work that no filter needs into the Loader's collate function.
template <class T, class Node, class Stage = detail::Flat<T>>
class Stream {
 public:
  using value_type = T;
  using Reader = detail::StreamReader<Node, Stage>;

  Stream(Node node, Stage stage) : node_(std::move(node)), stage_(std::move(stage)) {}

  template <class F>
  auto map(F f) const {
    if constexpr (is_flat)
      return flat(detail::FanMap<Node, F>{{node_}, std::move(f)});
    else
      return staged(detail::Mapped<Stage, F>{stage_, std::move(f)});
  }

  // The records for which keep(record) is true.
  template <class F>
  auto filter(F keep) const {
    check_flat("filter");
    return flat(detail::FanFilter<Node, F>{{node_}, std::move(keep)});
  }

  // All elements of each container f(record), which may be empty.
  template <class F>
  auto flat_map(F f) const {
    check_flat("flat_map");
    return flat(detail::FanFlatMap<Node, F>{{node_}, std::move(f)});
  }

  // std::vectors of `count` records; records at the end of an epoch that do not fill one are dropped.
  auto rebatch(int64_t count) const {
    check_flat("rebatch");
    detail::check_rebatch(count);
    return staged(detail::Group<T>{count});
  }

  // Documents (std::vector of tokens) side by side in rows of one length: data/streams/pack.h.
  auto pack(const PackOptions& options) const {
    check_flat("pack");
    using Token = typename T::value_type;
    auto pieces = [options](T document) { return detail::pieces_of(std::move(document), options); };
    auto node = detail::FanFlatMap<Node, decltype(pieces)>{{node_}, pieces};
    return Stream<PackedRow<Token>, decltype(node), FirstFit<Token>>(node, FirstFit<Token>(options));
  }

  // In windows in random order; the first records of each epoch alone. These and mix(weights, streams...) stand after
  // any word, pack() too: AnyStream's (data/streams/any_stream.h, which data/loader/loader.h includes).
  AnyStream<T> shuffle(int64_t window, uint64_t seed) const;
  AnyStream<T> limit(int64_t count) const;

  // One epoch from its beginning: for (const T& record : stream).
  using Iterator = detail::NextIterator<T>;
  Iterator begin() const {
    const auto get = [node = node_](int64_t epoch, int64_t index) { return node.get(epoch, index); };
    return Iterator(
        [reader = std::make_shared<Reader>(stage_, node_.size(), node_.round(), get)] { return reader->next(); });
  }
  std::default_sentinel_t end() const { return {}; }

  std::string describe() const { return node_.describe() + stage_.describe(); }
  const Node& node() const { return node_; }
  const Stage& stage() const { return stage_; }

 private:
  static constexpr bool is_flat = std::same_as<Stage, detail::Flat<T>>;

  static constexpr void check_flat(const char*) {
    static_assert(is_flat,
                  "tessera: after pack() and rebatch() a stream takes map(), shuffle() and limit() only; put this word "
                  "before them.");
  }
  template <class N>
  static auto flat(N node) {
    return Stream<typename N::item, N>(std::move(node), {});
  }
  template <class S>
  auto staged(S stage) const {
    return Stream<typename S::value_type, Node, S>(node_, std::move(stage));
  }

  Node node_;
  Stage stage_;
};

// The members of Dataset that make a stream; dataset.h declares them.
template <class T, class Node>
auto as_stream(const Dataset<T, Node>& dataset) {
  detail::check_not_empty("stream", dataset.size());
  return Stream<T, detail::Singles<Node>>(detail::Singles<Node>{{dataset.node()}}, {});
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
