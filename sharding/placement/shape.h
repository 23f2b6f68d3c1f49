// Shape: the sizes of an array's dims, and ranges of indices in them.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

namespace tessera {

using Shape = std::vector<int64_t>;

// "(8, 4)", "()" for a scalar.
std::string to_string(const Shape& shape);
std::ostream& operator<<(std::ostream& out, const Shape& shape);  // the same

// [start, stop) of every dim.
using IndexRanges = std::vector<std::pair<int64_t, int64_t>>;

namespace detail {

// [0, size) of every dim.
IndexRanges whole_block(const Shape& shape);

Shape sizes_of(const IndexRanges& block);

// "[0:2, 4:8]".
std::string ranges_text(const IndexRanges& ranges);

}  // namespace detail
}  // namespace tessera
