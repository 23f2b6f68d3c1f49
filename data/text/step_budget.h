// StepBudget: bounds the memory and time that a tokenizer's steps take for one text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tessera::data::detail {

// Steps of a tokenizer.json can double a text again and again, and regular expressions can take exponential time. All
// steps of one call share one budget in proportion to the text. One thread at a time.
class StepBudget {
 public:
  explicit StepBudget(size_t text_bytes);

  // Counts a text that a step at `place` of the file made longer. Error (invalid_file): all steps together add more
  // than 8 bytes for each byte of the text and 1 MiB, or the text reaches 2^31 bytes.
  void grow(size_t from, size_t to, const std::string& place) {
    if (to <= from) return;
    if (to - from > growth_) refuse_growth(place);
    growth_ -= to - from;
  }

  // Counts 10,000 steps of ICU's regular expressions, or one place at which an expression was tried. Returns false if a
  // limit is reached: 1,000 times 10,000 steps and one more for each 500 bytes; or 1 s and 4 microseconds for each byte
  // of this thread's CPU time, with the time of the other steps.
  bool tick() { return --ticks_ >= 0 && has_time(); }
  bool attempt() { return ++attempts_ % attempts_between_looks != 0 || has_time(); }

  size_t text_bytes() const { return text_bytes_; }

 private:
  static constexpr uint32_t attempts_between_looks = 64;  // a look at the clock takes as long as 5 attempts

  bool has_time();
  [[noreturn]] void refuse_growth(const std::string& place) const;

  size_t text_bytes_, growth_;
  int64_t ticks_;
  int64_t end_ = 0;  // in nanoseconds of CPU time, from the first look on
  uint32_t attempts_ = 0;
};

}  // namespace tessera::data::detail
