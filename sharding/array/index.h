// Index: one entry of x.index({...}) and x.at({...}): a number, a range, an array, an ellipsis or a new dimension.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <source_location>
#include <utility>

namespace tessera {

// Selects elements start, start + step, ... before stop. Negative indices count from the end, indices past an end are
// clipped, and an omitted bound means the end of the dimension: range(2, 5), range(2, {}), range({}, -1), range({}, {},
// -1) are numpy's 2:5, 2:, :-1, ::-1. As in Python, range(3) selects the first three.
struct Range {
  std::optional<int64_t> start, stop;
  int64_t step = 1;
};
inline Range range(std::optional<int64_t> start, std::optional<int64_t> stop, int64_t step = 1) {
  return {start, stop, step};
}
inline Range range(int64_t stop) { return {0, stop}; }

class Array;
struct Ellipsis {};
struct NewAxis {};
inline constexpr Ellipsis ellipsis;  // all dimensions without an entry
inline constexpr NewAxis newaxis;    // a new dimension of size one

struct Index {
  enum class Kind : uint8_t { range, integer, array, ellipsis, newaxis };

  Index() = default;  // {}: all of a dimension
  template <std::integral T>
  Index(T i, std::source_location line = std::source_location::current())
      : kind(Kind::integer), integer(saturated(i)), where(line) {}
  template <std::integral T>
  requires std::same_as<T, bool> Index(T, std::source_location = {})
  = delete;  // a mask is not an index: use where()
  Index(Range r, std::source_location line = std::source_location::current())
      : kind(Kind::range), range(r), where(line) {}
  template <class T>
  requires std::convertible_to<const T&, const Array&> Index(
      const T& given, std::source_location line = std::source_location::current())
      : kind(Kind::array), ids(&static_cast<const Array&>(given)), where(line) {}
  Index(Ellipsis, std::source_location line = std::source_location::current()) : kind(Kind::ellipsis), where(line) {}
  Index(NewAxis, std::source_location line = std::source_location::current()) : kind(Kind::newaxis), where(line) {}

  Kind kind = Kind::range;
  int64_t integer = 0;
  Range range = {};
  const Array* ids = nullptr;  // not owned: use an Index only as a parameter
  std::source_location where;

 private:
  // An index that exceeds int64 becomes int64's maximum, which is also out of range for every dimension.
  template <std::integral T>
  static constexpr int64_t saturated(T i) {
    return std::in_range<int64_t>(i) ? static_cast<int64_t>(i) : std::numeric_limits<int64_t>::max();
  }
};

}  // namespace tessera
