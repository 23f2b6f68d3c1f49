// NextIterator: the iterator of a range that gives one record after another until it gives none.
#pragma once

#include <cstddef>
#include <functional>
#include <iterator>
#include <optional>
#include <utility>

namespace tessera::data::detail {

template <class T>
class NextIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = T;
  using difference_type = std::ptrdiff_t;
  using pointer = const T*;
  using reference = const T&;

  explicit NextIterator(std::function<std::optional<T>()> next) : next_(std::move(next)), record_(next_()) {}
  const T& operator*() const { return *record_; }
  const T* operator->() const { return &*record_; }
  NextIterator& operator++() {
    record_ = next_();
    return *this;
  }
  void operator++(int) { ++*this; }
  friend bool operator==(const NextIterator& it, std::default_sentinel_t) { return !it.record_.has_value(); }

 private:
  std::function<std::optional<T>()> next_;
  std::optional<T> record_;
};

}  // namespace tessera::data::detail
