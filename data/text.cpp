// Widens byte windows to int32 and cuts them into inputs and targets.
#include "data/text.h"

#include <algorithm>
#include <string>

namespace tessera::data {

namespace {

void check(const std::vector<std::vector<uint8_t>>& windows) {
  if (windows.empty()) fail(ErrorKind::shape_mismatch, "token_batch", "no windows, expected at least one");
  const size_t length = windows.front().size();
  if (length < 2) {
    fail(ErrorKind::shape_mismatch, "token_batch",
         "windows of " + std::to_string(length) + " bytes, expected seq + 1, at least two");
  }
  for (const auto& window : windows) {
    if (window.size() == length) continue;
    fail(ErrorKind::shape_mismatch, "token_batch",
         "windows of " + std::to_string(length) + " and " + std::to_string(window.size()) + " bytes in one batch");
  }
}

Array rows(const std::vector<std::vector<uint8_t>>& windows, size_t first, size_t count) {
  std::vector<int32_t> values(windows.size() * count);
  auto out = values.begin();
  for (const auto& window : windows) out = std::copy_n(window.begin() + static_cast<ptrdiff_t>(first), count, out);
  return array<int32_t>(values, {static_cast<int64_t>(windows.size()), static_cast<int64_t>(count)});
}

}  // namespace

TokenBatch token_batch(const std::vector<std::vector<uint8_t>>& windows) {
  check(windows);
  const size_t length = windows.front().size() - 1;
  TokenBatch batch;
  batch.inputs.value = rows(windows, 0, length);
  batch.targets.value = rows(windows, 1, length);
  return batch;
}

}  // namespace tessera::data
