// The nodes of a Dataset's chain: plain structs, each of which holds the node before it (its parent).
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "data/datasets/random.h"
#include "data/datasets/shard_options.h"
#include "data/datasets/shuffle.h"
#include "sharding/base/error.h"

namespace tessera::data {

// The size of a dataset that never ends.
inline constexpr int64_t endless = std::numeric_limits<int64_t>::max();

// Requirements of a node; all members are const.
//   value_type, size()        the records of one epoch
//   get(epoch, index)         a record, or a reference to a record that lives as long as the node
//   reorders()                whether epochs differ in the record of an index
//   draws()                   whether epochs differ in random numbers of random_map
//   round()                   records in one pass over the data, also after repeat(); without repeat() it is size()
//   describe()                the chain as text, "range(10) | shuffle(feistel_v1 3)": the fingerprint in saved states
template <class N>
concept DatasetNode = requires(const N& node, int64_t i) {
  typename N::value_type;
  node.get(i, i);
  { node.size() } -> std::same_as<int64_t>;
  { node.round() } -> std::same_as<int64_t>;
  { node.reorders() } -> std::same_as<bool>;
  { node.draws() } -> std::same_as<bool>;
  { node.describe() } -> std::same_as<std::string>;
};

namespace detail {

// Returns the size as text; "endless" if it is endless.
std::string count_of(int64_t size);

// Throw Error (invalid_argument), with the numbers in the message, if the numbers do not fit together.
void check_index(int64_t epoch, int64_t index, int64_t size);
void check_shuffle(int64_t size);
void check_window_shuffle(int64_t window);
void check_slice(int64_t begin, int64_t end, int64_t step, int64_t size, bool reorders_and_draws);
void check_repeat(int64_t times, int64_t size);
void check_not_empty(std::string_view verb, int64_t size);
void check_cache(int64_t size, bool varies);
[[noreturn]] void fail_cache(int64_t size);

// Returns begin + number * each. Error (invalid_argument) if that overflows, as it can in an endless dataset.
[[noreturn]] void fail_beyond(int64_t number, int64_t each);
inline int64_t place_of(int64_t begin, int64_t number, int64_t each) {
  int64_t place = 0;
  if (__builtin_mul_overflow(number, each, &place) || __builtin_add_overflow(place, begin, &place))
    fail_beyond(number, each);
  return place;
}

int64_t shard_size(int64_t size, const ShardOptions& shard);
int64_t batched_size(int64_t size, int64_t batch_size, bool pad);

// Return the descriptions of chains, "range(10) | shuffle(feistel_v1 3)", and of links. They are not inline, so that
// chains do not compile them again.
std::string after(const std::string& before, const std::string& description);
std::string description_of(const char* link, int64_t number);  // "batch(32)"; "repeat()" if `number` is endless
std::string description_of_slice(int64_t begin, int64_t end, int64_t step);
std::string description_of_window_shuffle(int64_t window, uint64_t seed);
std::string description_of_random_map(uint64_t seed);

template <class N>
using record = typename N::value_type;

template <class T, class F>
struct FunctionNode {
  using value_type = T;
  int64_t records;
  F f;
  bool reshuffles;
  std::string description;

  int64_t size() const { return records; }
  int64_t round() const { return records; }
  bool reorders() const { return reshuffles; }
  bool draws() const { return false; }
  std::string describe() const { return description; }
  decltype(auto) get(int64_t epoch, int64_t index) const { return f(epoch, index); }
};

struct RangeNode {
  using value_type = int64_t;
  int64_t records;

  int64_t size() const { return records; }
  int64_t round() const { return records; }
  bool reorders() const { return false; }
  bool draws() const { return false; }
  std::string describe() const { return description_of("range", records); }
  int64_t get(int64_t, int64_t index) const { return index; }
};

template <class T>
struct VectorNode {
  using value_type = T;
  std::shared_ptr<const std::vector<T>> records;

  int64_t size() const { return static_cast<int64_t>(all().size()); }
  int64_t round() const { return size(); }
  bool reorders() const { return false; }
  bool draws() const { return false; }
  std::string describe() const { return description_of("vector", size()); }
  const T& get(int64_t, int64_t index) const { return all()[static_cast<size_t>(index)]; }

  const std::vector<T>& all() const { return tessera::detail::held(records, "from_vector", "dataset"); }
};

// Base of nodes with one parent: forwards to it the functions that most nodes do not change.
template <class N>
struct ChildNode {
  N parent;
  int64_t size() const { return parent.size(); }
  int64_t round() const { return parent.round(); }
  // Returns round() of a node with `size` records, each made from `each` records of the parent.
  int64_t round_by(int64_t each, int64_t size) const {
    const int64_t all = parent.round();
    return all == parent.size() ? size : std::max<int64_t>(1, all / each);
  }
  bool reorders() const { return parent.reorders(); }
  bool draws() const { return parent.draws(); }
  std::string after(const std::string& description) const { return detail::after(parent.describe(), description); }
};

template <class N, class F>
struct MapNode : ChildNode<N> {
  using value_type = std::decay_t<std::invoke_result_t<const F&, record<N>>>;
  F f;
  std::string describe() const { return this->after("map"); }
  value_type get(int64_t epoch, int64_t index) const { return std::invoke(f, this->parent.get(epoch, index)); }
};

template <class N, class F>
struct MapWithIndexNode : ChildNode<N> {
  using value_type = std::decay_t<std::invoke_result_t<const F&, int64_t, record<N>>>;
  F f;
  std::string describe() const { return this->after("map_with_index"); }
  value_type get(int64_t epoch, int64_t index) const { return std::invoke(f, index, this->parent.get(epoch, index)); }
};

template <class N, class F>
struct RandomMapNode : ChildNode<N> {
  using value_type = std::decay_t<std::invoke_result_t<const F&, record<N>, Philox&>>;
  uint64_t seed;
  F f;
  bool draws() const { return true; }
  std::string describe() const { return this->after(description_of_random_map(seed)); }
  value_type get(int64_t epoch, int64_t index) const {
    Philox random(seed, static_cast<uint64_t>(epoch), static_cast<uint64_t>(index));
    return std::invoke(f, this->parent.get(epoch, index), random);
  }
};

template <class N, class Order>
struct ShuffleNode : ChildNode<N> {
  using value_type = record<N>;
  Order order;
  bool reorders() const { return true; }
  std::string describe() const { return this->after(order.describe()); }
  decltype(auto) get(int64_t epoch, int64_t index) const {
    return this->parent.get(epoch, order.order(this->parent.size(), epoch)(index));
  }
};

template <class N>
struct WindowShuffleNode : ChildNode<N> {
  using value_type = record<N>;
  int64_t window;
  uint64_t seed;
  bool reorders() const { return true; }
  std::string describe() const { return this->after(description_of_window_shuffle(window, seed)); }
  decltype(auto) get(int64_t epoch, int64_t index) const {
    const int64_t number = index / window, begin = number * window;
    const int64_t count = std::min(window, this->parent.size() - begin);
    const Permutation order(count, epoch_seed(epoch_seed(seed, epoch), number));
    return this->parent.get(epoch, begin + order(index - begin));
  }
};

template <class N>
struct RepeatNode : ChildNode<N> {
  using value_type = record<N>;
  int64_t times;  // or endless
  int64_t size() const { return times == endless ? endless : this->parent.size() * times; }
  std::string describe() const { return this->after(description_of("repeat", times)); }
  decltype(auto) get(int64_t epoch, int64_t index) const {
    const int64_t each = this->parent.size();
    return this->parent.get(place_of(index / each, epoch, times == endless ? 0 : times), index % each);
  }
};

// Takes the records of the parent's epoch 0 in every epoch if the parent reorders, so that two slices of one shuffled
// dataset stay disjoint.
template <class N>
struct SliceNode : ChildNode<N> {
  using value_type = record<N>;
  int64_t begin, end, step;
  bool reorders() const { return false; }
  int64_t size() const { return end == endless ? endless : begin == end ? 0 : (end - begin - 1) / step + 1; }
  int64_t round() const {
    return this->parent.size() == endless ? std::max<int64_t>(1, this->parent.round() / step) : size();
  }
  std::string describe() const { return this->after(description_of_slice(begin, end, step)); }
  decltype(auto) get(int64_t epoch, int64_t index) const {
    return this->parent.get(this->parent.reorders() ? 0 : epoch, place_of(begin, index, step));
  }
};

template <class N>
struct ShardNode : ChildNode<N> {
  using value_type = record<N>;
  ShardOptions shard;
  int64_t size() const { return shard_size(this->parent.size(), shard); }
  int64_t round() const { return this->round_by(shard.count, size()); }
  std::string describe() const { return this->after(to_string(shard)); }
  decltype(auto) get(int64_t epoch, int64_t index) const {
    return this->parent.get(epoch, place_of(shard.index, index, shard.count));
  }
};

template <class N, class Collate>
struct BatchNode : ChildNode<N> {
  using Records = std::vector<record<N>>;
  using value_type = std::decay_t<std::invoke_result_t<const Collate&, const Records&, int64_t>>;
  int64_t batch_size;
  Collate collate;
  int64_t size() const { return batched_size(this->parent.size(), batch_size, Collate::pads); }
  int64_t round() const { return this->round_by(batch_size, size()); }
  std::string describe() const { return this->after(description_of("batch", batch_size)); }
  value_type get(int64_t epoch, int64_t index) const {
    const int64_t end = place_of(0, index + 1, batch_size), begin = end - batch_size, last = this->parent.size() - 1;
    Records records;
    records.reserve(static_cast<size_t>(batch_size));
    for (int64_t i = begin; i < end; ++i) records.push_back(this->parent.get(epoch, std::min(i, last)));
    return collate(std::as_const(records), std::min(batch_size, last + 1 - begin));
  }
};

// Caches records for all copies of the chain. If two threads compute one record at the same time, the first result is
// kept.
template <class T>
class RecordCache {
 public:
  explicit RecordCache(int64_t size) try : slots_(static_cast<size_t>(size)) {
  } catch (const std::exception&) {
    fail_cache(size);
  }
  RecordCache(const RecordCache&) = delete;
  RecordCache& operator=(const RecordCache&) = delete;
  ~RecordCache() {
    for (auto& slot : slots_) delete slot.load(std::memory_order_relaxed);
  }

  template <class Make>
  const T& get(int64_t index, Make make) {
    auto& slot = slots_[static_cast<size_t>(index)];
    if (const T* kept = slot.load(std::memory_order_acquire)) return *kept;
    auto made = std::make_unique<const T>(make());
    const T* kept = nullptr;
    if (slot.compare_exchange_strong(kept, made.get(), std::memory_order_acq_rel)) return *made.release();
    return *kept;
  }

 private:
  std::vector<std::atomic<const T*>> slots_;
};

template <class N>
struct CacheNode : ChildNode<N> {
  using value_type = record<N>;
  std::shared_ptr<RecordCache<value_type>> kept;
  std::string describe() const { return this->after("cache"); }
  const value_type& get(int64_t epoch, int64_t index) const {
    return kept->get(index, [&] { return this->parent.get(epoch, index); });
  }
};

// Holds any chain of records of type T behind one virtual call.
template <class T>
struct AnyNode {
  using value_type = T;
  struct Virtual {
    virtual ~Virtual() = default;
    virtual T get(int64_t epoch, int64_t index) const = 0;
    virtual std::string describe() const = 0;
  };
  template <class N>
  struct Holder : Virtual {
    explicit Holder(N n) : node(std::move(n)) {}
    T get(int64_t epoch, int64_t index) const override { return node.get(epoch, index); }
    std::string describe() const override { return node.describe(); }
    N node;
  };

  std::shared_ptr<const Virtual> held;
  int64_t records, one_round;
  bool has_other_order, has_other_draws;  // differs between epochs

  template <class N>
  static AnyNode of(N node) {
    const int64_t size = node.size(), round = node.round();
    const bool reorders = node.reorders(), draws = node.draws();
    return {std::make_shared<const Holder<N>>(std::move(node)), size, round, reorders, draws};
  }
  int64_t size() const { return records; }
  int64_t round() const { return one_round; }
  bool reorders() const { return has_other_order; }
  bool draws() const { return has_other_draws; }
  std::string describe() const { return chain().describe(); }
  T get(int64_t epoch, int64_t index) const { return chain().get(epoch, index); }

  const Virtual& chain() const { return tessera::detail::held(held, "Dataset", "dataset"); }
};

}  // namespace detail

}  // namespace tessera::data
