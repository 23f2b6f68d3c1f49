// Text and sizes of shapes and index ranges.
#include "sharding/placement/shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ostream>

namespace tessera {

std::string to_string(const Shape& shape) { return fmt::format("({})", fmt::join(shape, ", ")); }

std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << to_string(shape); }

IndexRanges detail::whole_block(const Shape& shape) {
  IndexRanges ranges;
  for (int64_t size : shape) ranges.emplace_back(0, size);
  return ranges;
}

std::string detail::ranges_text(const IndexRanges& ranges) {
  std::string text;
  for (const auto& [start, stop] : ranges) text += fmt::format("{}{}:{}", text.empty() ? "" : ", ", start, stop);
  return fmt::format("[{}]", text);
}

Shape detail::sizes_of(const IndexRanges& block) {
  Shape sizes;
  for (const auto& [start, stop] : block) sizes.push_back(stop - start);
  return sizes;
}

}  // namespace tessera
