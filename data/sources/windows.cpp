// The number and the stride of windows, and the sizes that windows() refuses.
#include "data/sources/windows.h"

#include <algorithm>
#include <string>

#include "sharding/base/fail.h"

namespace tessera::data::detail {

int64_t window_stride(int64_t length, int64_t stride) {
  return stride == 0 ? std::max<int64_t>(1, length - 1) : stride;
}

int64_t window_count(int64_t source_size, int64_t length, int64_t stride) {
  if (length < 1 || stride < 0) {
    fail(ErrorKind::invalid_argument, "windows",
         "length {} and stride {}, expected a length of at least 1 and a stride of at least 1 (or 0 for length - 1)",
         length, stride);
  }
  if (source_size < length) {
    fail(ErrorKind::invalid_argument, "windows",
         "a source of {} values is shorter than one window of {}; use more data or shorter windows", source_size,
         length);
  }
  return (source_size - length) / window_stride(length, stride) + 1;
}

}  // namespace tessera::data::detail
