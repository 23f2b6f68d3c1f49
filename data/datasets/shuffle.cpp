// The keys of permutations, and the sizes that they do not support.
#include "data/datasets/shuffle.h"

#include <bit>
#include <random>

#include "sharding/base/fail.h"

namespace tessera::data {

namespace {

constexpr int64_t kLargest = int64_t{1} << 62;
constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;

uint64_t check_size(int64_t size) {
  if (size < 1 || size > kLargest) {
    fail(ErrorKind::invalid_argument, "shuffle", "{} records, expected 1 to 2^62", size);
  }
  return static_cast<uint64_t>(size);
}

// Returns Grain's number of bits of an index, ceil(log2(size - 1)), rounded up to an even number of at least 16.
int grain_bits(uint64_t size) {
  const uint64_t largest = size - 1;
  const int bits = largest <= 1 ? 0 : std::bit_width(largest - 1);
  return std::max(16, bits + bits % 2);
}

}  // namespace

Permutation::Permutation(int64_t size, uint64_t seed) : size_(check_size(size)) {
  half_bits_ = std::max(1, (static_cast<int>(std::bit_width(size_ - 1)) + 1) / 2);
  for (auto& key : keys_) key = detail::murmur_finalizer(seed += kGolden);
}

GrainPermutation::GrainPermutation(int64_t size, uint32_t seed)
    : size_(check_size(size)), half_bits_(grain_bits(size_) / 2) {
  if ((size_ - 1) >> (2 * half_bits_)) {
    fail(ErrorKind::invalid_argument, "shuffle",
         "grain_v1 of {} records, a size of 2^k + 1 at which Grain's order loses the last record and repeats another; "
         "use feistel_v1, or leave out a record",
         size);
  }
  std::seed_seq sequence{seed};
  sequence.generate(keys_.begin(), keys_.end());
}

int64_t GrainPermutation::operator()(int64_t index) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  const auto rotated = [&](uint64_t x, int by) { return ((x << by) | (x >> (half_bits_ - by))) & mask; };
  const auto simon = [&](uint64_t x) { return (rotated(x, 1) & rotated(x, 8 % half_bits_)) ^ rotated(x, 2); };
  uint64_t x = static_cast<uint64_t>(index);
  do {
    uint64_t left = x >> half_bits_, right = x & mask;
    for (size_t round = 0; round < keys_.size(); round += 2) {
      left ^= simon(right) ^ (keys_[round] & mask);
      right ^= simon(left) ^ (keys_[round + 1] & mask);
    }
    x = (left << half_bits_) | right;
  } while (x >= size_);
  return static_cast<int64_t>(x);
}

uint64_t epoch_seed(uint64_t seed, int64_t epoch) {
  return detail::murmur_finalizer(detail::murmur_finalizer(seed + kGolden) + static_cast<uint64_t>(epoch));
}

std::string feistel_v1::describe() const { return fmt::format("shuffle(feistel_v1 {})", seed); }
std::string grain_v1::describe() const { return fmt::format("shuffle(grain_v1 {})", seed); }

}  // namespace tessera::data
