// Computes from the weights of a mix the periodic order in which its parts take turns.
#include "data/datasets/combine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <numeric>

#include "sharding/base/fail.h"

namespace tessera::data::detail {

namespace {

constexpr int64_t kFinest = 10'000;

std::string list_of(const std::vector<double>& weights) { return fmt::format("{{{:g}}}", fmt::join(weights, ", ")); }

bool divides(const std::vector<double>& fractions, int64_t denominator) {
  for (const double fraction : fractions) {
    const double share = fraction * static_cast<double>(denominator);
    if (std::abs(share - std::round(share)) > 1e-9 * static_cast<double>(denominator)) return false;
  }
  return true;
}

std::vector<int64_t> shares_of(const std::vector<double>& weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<double> fractions;
  for (const double weight : weights) fractions.push_back(weight / sum);
  int64_t denominator = 1;
  while (denominator < kFinest && !divides(fractions, denominator)) ++denominator;
  std::vector<int64_t> shares;
  for (const double fraction : fractions) shares.push_back(std::llround(fraction * static_cast<double>(denominator)));
  for (const int64_t share : shares)
    if (share < 1)
      fail(ErrorKind::invalid_argument, "mix", "weights {}, expected each to be 1/10,000 of their sum or more",
           list_of(weights));
  return shares;
}

}  // namespace

void check_weights(const std::vector<double>& weights, size_t datasets) {
  if (datasets == 0) fail(ErrorKind::invalid_argument, "mix", "no datasets and no streams, expected at least one");
  if (weights.size() != datasets) {
    fail(ErrorKind::invalid_argument, "mix", "{} weights for {} datasets, expected as many", weights.size(), datasets);
  }
  for (const double weight : weights)
    if (!(weight > 0 && std::isfinite(weight)))
      fail(ErrorKind::invalid_argument, "mix", "weights {}, expected more than 0", list_of(weights));
}

// Gives each turn to the part that is furthest behind its share; of equal parts, to the first.
Proportions::Proportions(const std::vector<double>& weights) : shares_(shares_of(weights)) {
  const int64_t turns = std::accumulate(shares_.begin(), shares_.end(), int64_t{0});
  std::vector<int64_t> taken(shares_.size());
  for (int64_t turn = 1; turn <= turns; ++turn) {
    size_t next = 0;
    const auto behind = [&](size_t part) { return shares_[part] * turn - taken[part] * turns; };
    for (size_t part = 1; part < shares_.size(); ++part)
      if (behind(part) > behind(next)) next = part;
    turns_.push_back({next, taken[next]++});
  }
}

Place Proportions::place(int64_t index) const {
  const Place& turn = turns_[static_cast<size_t>(index % period())];
  return {turn.part, turn.index + index / period() * shares_[turn.part]};
}

int64_t Proportions::end_of(size_t part, int64_t size) const {
  if (size == endless) return endless;
  const int64_t periods = size / shares_[part], rest = size % shares_[part];
  int64_t turn = 0;  // turn of the last period at which the part ends
  while (turns_[static_cast<size_t>(turn)].part != part || turns_[static_cast<size_t>(turn)].index < rest) ++turn;
  return periods > (endless - 1 - turn) / period() ? endless : periods * period() + turn;
}

int64_t Proportions::size(const std::vector<int64_t>& sizes) const {
  int64_t least = endless;
  for (size_t part = 0; part < sizes.size(); ++part) least = std::min(least, end_of(part, sizes[part]));
  return least;
}

int64_t Proportions::round(const std::vector<int64_t>& rounds) const {
  int64_t most = 0;
  for (size_t part = 0; part < rounds.size(); ++part) most = std::max(most, end_of(part, rounds[part]));
  return most;
}

std::string Proportions::describe() const { return fmt::format("{}", fmt::join(shares_, " ")); }

int64_t concatenated_size(const std::vector<int64_t>& sizes) {
  int64_t sum = 0;
  for (const int64_t size : sizes) {
    if (size == endless)
      fail(ErrorKind::invalid_argument, "concat", "an endless dataset; concatenate first, then repeat");
    if (size > endless - 1 - sum) fail(ErrorKind::invalid_argument, "concat", "more than 2^63 - 2 records together");
    sum += size;
  }
  return sum;
}

int64_t zipped_size(const std::vector<int64_t>& sizes) {
  for (const int64_t size : sizes) {
    if (size == sizes.front()) continue;
    fail(ErrorKind::invalid_argument, "zip", "datasets of {} and {} records, expected as many; use slice()",
         count_of(sizes.front()), count_of(size));
  }
  return sizes.front();
}

std::string joined(const char* link, const std::vector<std::string>& parts) {
  return fmt::format("{}({})", link, fmt::join(parts, "; "));
}

}  // namespace tessera::data::detail
