// Names ordered by their distance.
#include "sharding/base/closest_matches.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace tessera::detail {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j)
      diagonal = std::exchange(row[j + 1], std::min({row[j + 1] + 1, row[j] + 1, diagonal + (a[i] == b[j] ? 0 : 1)}));
  }
  return row.back();
}

std::vector<std::string> closest_matches(std::string_view name, const std::vector<std::string>& among, size_t most) {
  std::vector<std::pair<size_t, size_t>> order;
  for (size_t i = 0; i < among.size(); ++i)
    if (!among[i].empty()) order.emplace_back(edit_distance(name, among[i]), i);
  most = std::min(most, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(most), order.end());
  std::vector<std::string> nearest;
  for (size_t i = 0; i < most; ++i) nearest.push_back(among[order[i].second]);
  return nearest;
}

std::string nearest_words(std::string_view name, const std::vector<std::string>& among) {
  const std::vector<std::string> best = closest_matches(name, among, 1);
  if (best.empty() || edit_distance(name, best[0]) > 1 + name.size() / 4) return "";
  return fmt::format("; \"{}\" is the nearest", best[0]);
}

}  // namespace tessera::detail
