// StepBudget: limits in proportion to the text, plus a constant for short texts.
#include "data/text/step_budget.h"

#include <time.h>

#include <algorithm>

#include "sharding/base/fail.h"

namespace tessera::data::detail {
namespace {

// Replacing spaces by U+2581 adds 2 bytes per byte, NFKC at most 3 (10 for U+FDFA alone), and a byte-level alphabet
// doubles the result. So ordinary texts grow by at most 7 bytes per byte.
constexpr size_t growth_per_byte = 8, growth_of_any = 1 << 20;
constexpr size_t longest_text = (size_t{1} << 31) - 1;  // offsets are int32

// ICU makes about 30,000 ticks per second. GPT-2's expression takes one tick for 6,000 bytes.
constexpr int64_t ticks_of_any = 1000, bytes_per_tick = 500;
// Encoding takes 40 to 500 ns per byte, and ten times that with sanitizers. Expressions that scan far ahead from each
// position take much time with few ticks.
constexpr int64_t nanoseconds_of_any = 1'000'000'000, nanoseconds_per_byte = 4000;

int64_t cpu_time() {
  struct timespec now;
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

StepBudget::StepBudget(size_t text_bytes)
    : text_bytes_(text_bytes),
      growth_(
          std::min(growth_per_byte * text_bytes + growth_of_any, longest_text - std::min(text_bytes, longest_text))),
      ticks_(ticks_of_any + static_cast<int64_t>(text_bytes) / bytes_per_tick) {}

bool StepBudget::has_time() {
  const int64_t now = cpu_time();
  if (end_ == 0) end_ = now + nanoseconds_of_any + nanoseconds_per_byte * static_cast<int64_t>(text_bytes_);
  return now < end_;
}

void StepBudget::refuse_growth(const std::string& place) const {
  fail(ErrorKind::invalid_file, "Tokenizer",
       "{}: the steps make a text of {} bytes too long, expected at most {} more bytes for each byte and 1 "
       "MiB, and fewer than 2^31 in all. Shorten what this step inserts, or the text.",
       place, text_bytes_, growth_per_byte);
}

}  // namespace tessera::data::detail
