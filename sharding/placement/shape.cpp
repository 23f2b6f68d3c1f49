// Shapes as text, and their whole ranges.
#include "sharding/placement/shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tessera {

std::string to_string(const Shape& shape) { return fmt::format("({})", fmt::join(shape, ", ")); }

IndexRanges detail::whole_block(const Shape& shape) {
  IndexRanges ranges;
  for (int64_t size : shape) ranges.emplace_back(0, size);
  return ranges;
}

}  // namespace tessera
