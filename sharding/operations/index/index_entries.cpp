// Parses the entries of x.index({...}) by numpy's rules.
#include "sharding/operations/index/index_entries.h"

#include <fmt/format.h>

#include <algorithm>

#include "sharding/array/array_impl.h"
#include "sharding/base/fail.h"

namespace tessera::detail {

int64_t clamped_step(int64_t step, int64_t size) {
  const int64_t most = std::max<int64_t>(size, 1);
  return std::clamp(step, -most, most);
}

Parts whole_parts(const Shape& shape) {
  Parts parts;
  for (int64_t size : shape) parts.push_back({0, size, 1});
  return parts;
}

int64_t checked_place(const char* verb, const Array& x, int dim, int64_t index) {
  const int64_t size = x.shape()[dim];
  if (index < -size || index >= size)
    fail(ErrorKind::invalid_argument, verb, "index {} of dim {} of {}, {}.", index, dim, x.type_string(),
         size ? fmt::format("expected {} to {}", -size, size - 1) : "which has no elements");
  return index < 0 ? index + size : index;
}

namespace {

// Returns numpy's meaning of start:stop:step along a dimension of this size.
Part part_of_range(const char* verb, const Range& r, int64_t size) {
  if (r.step == 0) fail(ErrorKind::invalid_argument, verb, "a range with step 0, expected another.");
  const int64_t low = r.step > 0 ? 0 : -1, high = r.step > 0 ? size : size - 1;
  const auto place = [&](const std::optional<int64_t>& p, int64_t otherwise) {
    return p ? std::clamp(*p < 0 ? *p + size : *p, low, high) : otherwise;
  };
  const int64_t start = place(r.start, r.step > 0 ? low : high), stop = place(r.stop, r.step > 0 ? high : low);
  const int64_t step = clamped_step(r.step, size), distance = step > 0 ? stop - start : start - stop;
  return {start, std::max<int64_t>(0, (distance + std::abs(step) - 1) / std::abs(step)), step};
}

// Returns true if an entry of another kind separates two integers or arrays.
bool are_apart(std::initializer_list<Index> entries) {
  const auto picks = [](const Index& e) { return e.kind == Index::Kind::integer || e.kind == Index::Kind::array; };
  const auto first = std::find_if(entries.begin(), entries.end(), picks);
  const auto last = std::find_if(std::rbegin(entries), std::rend(entries), picks).base();
  return first < last && !std::all_of(first, last, picks);
}

}  // namespace

ReadIndex read_index(const char* verb, const Array& x, std::initializer_list<Index> entries) {
  using Kind = Index::Kind;
  materialized(x, verb);
  int named = 0, ellipses = 0;
  for (const Index& e : entries) {
    named += e.kind == Kind::integer || e.kind == Kind::range || e.kind == Kind::array;
    ellipses += e.kind == Kind::ellipsis;
  }
  if (named > x.ndim() || ellipses > 1)
    fail(ErrorKind::invalid_argument, verb, "{} entries and {} ellipses for {}, expected at most {} and 1.", named,
         ellipses, x.type_string(), x.ndim());
  ReadIndex read{.parts = whole_parts(x.shape()), .gone = {}, .fresh = {}, .ids_first = are_apart(entries)};
  int dim = 0, out = 0;
  for (const Index& e : entries) {
    if (e.kind == Kind::newaxis) {
      read.fresh.push_back(out++);
    } else if (e.kind == Kind::ellipsis) {
      dim += x.ndim() - named, out += x.ndim() - named;
    } else if (e.kind == Kind::array) {
      if (read.ids)
        fail(ErrorKind::invalid_argument, verb, "two arrays of indices, expected one. Index with one after the other.");
      read.ids = e.ids, read.taken = out;
      ++dim, ++out;
    } else if (e.kind == Kind::range) {
      read.parts[dim] = part_of_range(verb, e.range, x.shape()[dim]);
      ++dim, ++out;
    } else {
      read.parts[dim] = {checked_place(verb, x, dim, e.integer), 1, 1};
      read.gone.push_back(dim++);
    }
  }
  return read;
}

}  // namespace tessera::detail
