// StepBudget: bounds the memory and time that a tokenizer's steps take for one text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tessera::data::detail {

// Bounds all steps of one call in proportion to the text. Without a bound, the steps of a tokenizer.json can double a
// text again and again, and regular expressions can take exponential time. Use it in one thread.
class StepBudget {
 public:
  explicit StepBudget(size_t text_bytes);

  // Counts the bytes by which a step at `place` of the file makes a text longer. Error (invalid_file): all steps
  // together add more than 8 bytes for each byte of the text and 1 MiB, or the text reaches 2^31 bytes.
  void grow(size_t from, size_t to, const std::string& place) {
    if (to <= from) return;
    if (to - from > growth_) refuse_growth(place);
    growth_ -= to - from;
  }

  // Count 10,000 steps of ICU's regular expressions, or one place at which an expression was tried. They return false
  // if a limit is reached. The first limit is 1,000 times 10,000 steps, and one more for each 500 bytes. The second is
  // 1 s and 4 microseconds per byte of this thread's CPU time, including the other steps.
  bool tick() { return --ticks_ >= 0 && has_time(); }
  bool attempt() { return ++attempts_ % attempts_between_looks != 0 || has_time(); }

  size_t text_bytes() const { return text_bytes_; }

 private:
  static constexpr uint32_t attempts_between_looks = 64;  // reading the clock takes as long as 5 attempts

  bool has_time();
  [[noreturn]] void refuse_growth(const std::string& place) const;

  size_t text_bytes_, growth_;
  int64_t ticks_;
  int64_t end_ = 0;  // in nanoseconds of CPU time, from the first has_time() on
  uint32_t attempts_ = 0;
};

}  // namespace tessera::data::detail
