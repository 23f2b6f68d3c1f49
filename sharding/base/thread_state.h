// ScopedValue: sets a variable for a scope. BoundedCache: a bounded cache of one thread.
#pragma once

#include <cstddef>
#include <utility>

namespace tessera::detail {

// Sets a variable of the thread or process in its scope. The tape, the manual axes and similar state are set with it,
// so exceptions restore them. Destroy scopes in the thread that created them, in reverse order.
template <class T>
class ScopedValue {
 public:
  ScopedValue(T& variable, T value) : variable_(variable), outer_(std::exchange(variable, std::move(value))) {}
  ~ScopedValue() { variable_ = std::move(outer_); }
  ScopedValue(const ScopedValue&) = delete;
  ScopedValue& operator=(const ScopedValue&) = delete;

  const T& outer() const { return outer_; }

 private:
  T& variable_;
  T outer_;
};

// A bounded cache for one thread (not thread-safe), over a std::map or std::unordered_map. With `most` values, the
// cache retires all of them and drops those retired before. A value thus remains valid until `most` others are made,
// also during calls in progress.
template <class Map, size_t most>
class BoundedCache {
 public:
  // Returns the key with its value; make() creates the value if it is missing. `key` may be any type that Map can look
  // up and construct a key from. A tuple of references, for example, is copied only for a new key.
  template <class Key, class Make>
  const typename Map::value_type& get(const Key& key, Make&& make) {
    if (const auto found = held_.find(key); found != held_.end()) return *found;
    auto value = make();
    if (held_.size() >= most) retired_ = std::exchange(held_, {});
    return *held_.emplace(key, std::move(value)).first;
  }
  size_t size() const { return held_.size(); }

 private:
  Map held_, retired_;
};

}  // namespace tessera::detail
