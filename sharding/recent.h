// Recent: what calls work out from their operands' types and their options, kept for the next calls like them.
#pragma once

#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>

namespace tessera::detail {

// What a call's set-up follows from: sizes, words, pointers, as one row of numbers.
class Signature {
 public:
  Signature& add(int64_t number) { return numbers_.push_back(number), *this; }
  Signature& add(const void* pointer) { return add(static_cast<int64_t>(reinterpret_cast<intptr_t>(pointer))); }
  Signature& add(c10::IntArrayRef numbers) {
    return numbers_.append(numbers.begin(), numbers.end()), add(numbers.size());
  }
  Signature& add(const std::string& word) { return numbers_.append(word.begin(), word.end()), add(word.size()); }
  friend bool operator==(const Signature&, const Signature&) = default;

 private:
  c10::SmallVector<int64_t, 48> numbers_;
};

// The set-ups of a thread's last few kinds of calls, so that a call like one before does not work it out again.
template <class SetUp>
class Recent {
 public:
  // The set-up of this signature, from `make()` if it is new. It stays until some others were made.
  template <class Make>
  const SetUp& get(const Signature& signature, Make&& make) {
    for (const auto& [known, set_up] : kept_)
      if (known == signature) return set_up;
    SetUp made = make();
    auto& oldest = kept_[next_];
    next_ = (next_ + 1) % kept_.size();
    oldest = {signature, std::move(made)};
    return oldest.second;
  }

 private:
  std::array<std::pair<Signature, SetUp>, 8> kept_;
  size_t next_ = 0;
};

}  // namespace tessera::detail
