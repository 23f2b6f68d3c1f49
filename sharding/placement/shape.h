// Shape: the sizes of an array's dimensions; IndexRanges: a range of indices for each dimension.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

namespace tessera {

using Shape = std::vector<int64_t>;

// Returns "(8, 4)", or "()" for a scalar.
std::string to_string(const Shape& shape);
std::ostream& operator<<(std::ostream& out, const Shape& shape);  // the text of to_string

// [start, stop) of every dimension.
using IndexRanges = std::vector<std::pair<int64_t, int64_t>>;

namespace detail {

// Returns [0, size) of every dimension.
IndexRanges whole_block(const Shape& shape);

Shape sizes_of(const IndexRanges& block);

// Returns "[0:2, 4:8]".
std::string ranges_text(const IndexRanges& ranges);

}  // namespace detail
}  // namespace tessera
