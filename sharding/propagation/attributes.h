// Attributes: the arguments of a call, in addition to its operands, on which its plan depends, as integers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "sharding/array/array.h"

namespace tessera::detail {

// The arguments that change shapes or shardings (dimensions, sizes, ...). They are part of the key of the plan cache,
// so arguments that only change values do not belong here.
class Attributes {
 public:
  static constexpr int most = 16;
  // Leaves values_ unset, since every call makes an Attributes. With a defaulted constructor, {} would zero all of
  // them.
  Attributes() {}
  Attributes(std::initializer_list<int64_t> values) {
    for (int64_t v : values) push_back(v);
  }
  Attributes(std::initializer_list<int64_t> first, std::span<const int64_t> rest) : Attributes(first) {
    for (int64_t v : rest) push_back(v);
  }
  Attributes(const Attributes& other) { *this = other; }
  Attributes& operator=(const Attributes& other) {
    size_ = other.size_;
    for (int i = 0; i < size_; ++i) values_[i] = other.values_[i];
    return *this;
  }
  void push_back(int64_t value) {
    if (size_ == most) refuse_more();
    values_[size_++] = value;
  }
  int size() const { return size_; }
  int64_t operator[](int i) const { return values_[i]; }
  friend bool operator==(const Attributes& a, const Attributes& b) {
    if (a.size_ != b.size_) return false;
    for (int i = 0; i < a.size_; ++i)
      if (a.values_[i] != b.values_[i]) return false;
    return true;
  }

 private:
  [[noreturn]] static void refuse_more();

  int64_t values_[most];  // unset past size_
  int size_ = 0;
};

// Numbers values that are not integers, so that they can be attributes: one number per distinct value, kept forever.
// Thread-safe.
template <class Value>
class Numbers {
 public:
  int64_t number_of(const Value& value) {
    std::lock_guard lock(mutex_);
    const auto [found, fresh] = numbers_.try_emplace(value, static_cast<int64_t>(values_.size()));
    if (fresh) values_.push_back(&found->first);
    return found->second;
  }
  const Value& operator[](int64_t number) {
    std::lock_guard lock(mutex_);
    return *values_[number];
  }

 private:
  std::mutex mutex_;
  std::map<Value, int64_t> numbers_;
  std::vector<const Value*> values_;
};

// Throws an Error (invalid_argument) if the `given` values, which the message calls `what`, and `others` together
// exceed Attributes::most.
void check_attributes(const char* verb, const Array& x, const char* what, size_t given, size_t others = 0);

}  // namespace tessera::detail
