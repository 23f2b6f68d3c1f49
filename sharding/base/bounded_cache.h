// BoundedCache: values made once for each key, a bounded number of them.
#pragma once

#include <cstddef>
#include <utility>

namespace tessera::detail {

// The bounded cache of one thread (not thread-safe), over a std::map or std::unordered_map. When `most` values are held
// all are set aside, and what was set aside before is dropped: so a value stays valid until `most` others were made,
// and those of calls in progress do.
template <class Map, size_t most>
class BoundedCache {
 public:
  // The key with its value; make() makes it where it is not held. `key` may be anything that Map finds a key by and
  // makes one of: a tuple of references, which are copied for a new key only.
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
