// Widens windows to int32 and splits them into inputs and targets.
#include "data/batches/token_batch.h"

#include <algorithm>
#include <limits>

#include "data/batches/stack.h"
#include "sharding/base/fail.h"

namespace tessera::data {

namespace {

template <class Token>
void check(const std::vector<std::vector<Token>>& windows) {
  if (windows.empty()) fail(ErrorKind::shape_mismatch, "token_batch", "no windows, expected at least one");
  const size_t length = windows.front().size();
  if (length < 2) {
    fail(ErrorKind::shape_mismatch, "token_batch", "windows of {} values, expected seq + 1, at least two", length);
  }
  for (const auto& window : windows) {
    if (window.size() == length) continue;
    fail(ErrorKind::shape_mismatch, "token_batch", "windows of {} and {} values in one batch", length, window.size());
  }
}

void check_fits(const std::vector<uint32_t>& window) {
  const uint32_t largest = *std::max_element(window.begin(), window.end());
  if (largest <= static_cast<uint32_t>(std::numeric_limits<int32_t>::max())) return;
  fail(ErrorKind::invalid_argument, "token_batch", "token {} is beyond int32; is this a file of uint32 tokens?",
       largest);
}

void check_fits(const std::vector<int32_t>& window) {
  const int32_t least = *std::min_element(window.begin(), window.end());
  if (least < 0) fail(ErrorKind::invalid_argument, "token_batch", "token {} is below 0", least);
}

template <class Token>
Array cut(const std::vector<std::vector<Token>>& windows, size_t first, size_t count) {
  const auto out = detail::unwritten(int32, {static_cast<int64_t>(windows.size()), static_cast<int64_t>(count)});
  auto* to = static_cast<int32_t*>(out.data);
  for (const auto& window : windows) to = std::copy_n(window.begin() + static_cast<ptrdiff_t>(first), count, to);
  return out.array;
}

template <class Token>
TokenBatch make(const std::vector<std::vector<Token>>& windows) {
  check(windows);
  if constexpr (sizeof(Token) == 4)
    for (const auto& window : windows) check_fits(window);
  const size_t length = windows.front().size() - 1;
  TokenBatch batch;
  batch.inputs = cut(windows, 0, length);
  batch.targets = cut(windows, 1, length);
  return batch;
}

}  // namespace

TokenBatch TokenBatcher::operator()(const std::vector<std::vector<uint8_t>>& windows) const { return make(windows); }

template <class Token>
TokenBatch TokenBatcher::operator()(const std::vector<std::vector<Token>>& windows) const {
  return make(windows);
}
template TokenBatch TokenBatcher::operator()(const std::vector<std::vector<uint16_t>>&) const;
template TokenBatch TokenBatcher::operator()(const std::vector<std::vector<uint32_t>>&) const;
template TokenBatch TokenBatcher::operator()(const std::vector<std::vector<int32_t>>&) const;

}  // namespace tessera::data
