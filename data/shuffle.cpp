// The Feistel permutation: six rounds over the smallest even-bit domain, with cycle walking.
#include "data/shuffle.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "nn/tree.h"

namespace tessera::data {

namespace {

constexpr int64_t kLargest = int64_t{1} << 62;
constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;

uint64_t murmur_finalizer(uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccd;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53;
  return x ^ (x >> 33);
}

uint64_t check_size(int64_t size) {
  if (size < 1 || size > kLargest) {
    fail(ErrorKind::bad_argument, "shuffle", std::to_string(size) + " records, expected 1 to 2^62");
  }
  return static_cast<uint64_t>(size);
}

}  // namespace

Permutation::Permutation(int64_t size, uint64_t seed) : size_(check_size(size)) {
  half_bits_ = std::max(1, (static_cast<int>(std::bit_width(size_ - 1)) + 1) / 2);
  for (auto& key : keys_) key = murmur_finalizer(seed += kGolden);
}

uint64_t Permutation::once(uint64_t x) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = x >> half_bits_;
  uint64_t right = x & mask;
  for (const uint64_t key : keys_) {
    left ^= murmur_finalizer(right + key) & mask;
    std::swap(left, right);
  }
  return (left << half_bits_) | right;
}

int64_t Permutation::operator()(int64_t index) const {
  uint64_t x = static_cast<uint64_t>(index);
  do x = once(x);
  while (x >= size_);
  return static_cast<int64_t>(x);
}

uint64_t epoch_seed(uint64_t seed, int64_t epoch) {
  return murmur_finalizer(murmur_finalizer(seed + kGolden) + static_cast<uint64_t>(epoch));
}

}  // namespace tessera::data
