// Counts bytes and pairs of adjacent bytes in one pass, then sums.
#include "data/sources/entropy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

namespace tessera::data {

namespace {

double entropy_of(std::span<const int64_t> counts, int64_t total) {
  double sum = 0;
  for (const int64_t count : counts) {
    const auto c = static_cast<double>(count);
    if (count > 0) sum += c * std::log(static_cast<double>(total) / c);
  }
  return total == 0 ? 0 : sum / static_cast<double>(total);
}

template <class Counts>
double entropy_of_counts(const Counts& counts, int64_t total) {
  std::vector<int64_t> all;
  for (const auto& [value, count] : counts) all.push_back(count);
  return entropy_of(std::span<const int64_t>(all), total);
}

using Histogram = std::array<int64_t, 256>;

Histogram count_bytes(const ByteSource& source) {
  std::array<Histogram, 4> lanes{};
  source.scan(0, source.size(), [&](std::span<const uint8_t> piece) {
    for (size_t i = 0; i < piece.size(); ++i) ++lanes[i % 4][piece[i]];
  });
  for (size_t byte = 0; byte < 256; ++byte) {
    for (size_t lane = 1; lane < 4; ++lane) lanes[0][byte] += lanes[lane][byte];
  }
  return lanes[0];
}

// Returns 257 histograms; histogram a counts the bytes that follow byte a.
std::vector<Histogram> count_pairs(const ByteSource& source) {
  std::vector<Histogram> pairs(257);
  size_t previous = 256;  // predecessor of the first byte
  source.scan(0, source.size(), [&](std::span<const uint8_t> piece) {
    for (const uint8_t byte : piece) {
      ++pairs[previous][byte];
      previous = byte;
    }
  });
  pairs.pop_back();
  return pairs;
}

}  // namespace

void TokenEntropies::add(std::span<const int32_t> document) {
  for (size_t i = 0; i < document.size(); ++i) {
    ++tokens_, ++counts_[document[i]];
    if (i + 1 == document.size()) continue;
    ++pairs_, ++befores_[document[i]];
    ++followers_[static_cast<int64_t>(document[i]) << 32 | static_cast<uint32_t>(document[i + 1])];
  }
}

double TokenEntropies::unigram() const { return entropy_of_counts(counts_, tokens_); }
double TokenEntropies::bigram() const {
  return std::max(0.0, entropy_of_counts(followers_, pairs_) - entropy_of_counts(befores_, pairs_));
}

double unigram_entropy(const ByteSource& source) { return entropy_of(count_bytes(source), source.size()); }

double bigram_entropy(const ByteSource& source) {
  double sum = 0;
  for (const Histogram& row : count_pairs(source)) {
    int64_t total = 0;
    for (const int64_t count : row) total += count;
    sum += entropy_of(row, total) * static_cast<double>(total);
  }
  return source.size() == 1 ? 0 : sum / static_cast<double>(source.size() - 1);
}

}  // namespace tessera::data
