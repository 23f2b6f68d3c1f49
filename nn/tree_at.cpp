// The errors of tree_at, and paths that look alike.
#include "nn/tree_at.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

namespace tessera::nn {

namespace {

// Levenshtein's distance.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j)
      diagonal = std::exchange(row[j + 1], std::min({row[j + 1] + 1, row[j] + 1, diagonal + (a[i] == b[j] ? 0 : 1)}));
  }
  return row.back();
}

}  // namespace

std::vector<std::string> near_paths(std::string_view path, const std::vector<std::string>& among, size_t most) {
  std::vector<std::pair<size_t, size_t>> order;
  for (size_t i = 0; i < among.size(); ++i)
    if (!among[i].empty()) order.emplace_back(distance(path, among[i]), i);
  most = std::min(most, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(most), order.end());
  std::vector<std::string> nearest;
  for (size_t i = 0; i < most; ++i) nearest.push_back(among[order[i].second]);
  return nearest;
}

void detail::check_replaced(std::string_view pattern, const std::vector<std::string>& seen,
                            const std::vector<std::string>& matched, const std::vector<std::string>& replaced,
                            std::string_view type, std::string_view given, bool is_value) {
  if (matched.empty())
    fail(ErrorKind::bad_argument, "tree_at",
         fmt::format("{}: the tree has no such path. Near it are {}.", pattern,
                     fmt::join(near_paths(pattern, seen), ", ")));
  if (replaced.empty())
    fail(ErrorKind::bad_argument, "tree_at",
         fmt::format("{}: it is a {}, which the replacement (a {}) does not fit. Give one of the same type, or a "
                     "function that takes and returns it.",
                     matched.back(), type, given));
  if (is_value && replaced.size() > 1)
    fail(ErrorKind::bad_argument, "tree_at",
         fmt::format("{}: one array for {} places, {} and {} among them, expected one for each. Give a function, which "
                     "makes each its own.",
                     pattern, replaced.size(), replaced[0], replaced[1]));
}

}  // namespace tessera::nn
