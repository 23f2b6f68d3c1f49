// Shuffling by arithmetic: a keyed permutation of [0, n) that is computed index by index, with no buffer.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>

namespace tessera::data {

// The seed for an epoch of a dataset shuffled with `seed`: a hash, so that consecutive seeds share no epoch's order.
uint64_t epoch_seed(uint64_t seed, int64_t epoch);

namespace detail {

inline uint64_t murmur_finalizer(uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccd;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53;
  return x ^ (x >> 33);
}

}  // namespace detail

// A pseudo-random bijection of [0, size) chosen by `seed`; 64 bytes whatever the size.
//
// Method (feistel_v1): a balanced Feistel network of 6 rounds over the smallest domain of an even number of bits that
// holds every index, its round function MurmurHash3's 64-bit finalizer of the half and a round key; an image outside
// [0, size) is sent through the network again until it falls inside (cycle walking), at most four times on average.
// So it is a bijection for every size from 1 to 2^62. The values are part of the library's promise: a saved loader
// state replays the same order in every later version.
class Permutation {
 public:
  // Error (invalid_argument) if size < 1 or size > 2^62.
  Permutation(int64_t size, uint64_t seed);

  int64_t size() const { return static_cast<int64_t>(size_); }

  // The image of index, which must lie in [0, size).
  int64_t operator()(int64_t index) const {
    uint64_t x = static_cast<uint64_t>(index);
    do x = once(x);
    while (x >= size_);
    return static_cast<int64_t>(x);
  }

 private:
  static constexpr int kRounds = 6;

  uint64_t once(uint64_t x) const {
    const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
    uint64_t left = x >> half_bits_;
    uint64_t right = x & mask;
    for (const uint64_t key : keys_) {
      left ^= detail::murmur_finalizer(right + key) & mask;
      std::swap(left, right);
    }
    return (left << half_bits_) | right;
  }

  uint64_t size_;
  int half_bits_;
  std::array<uint64_t, kRounds> keys_;
};

// Grain's index_shuffle(index, max_index = size - 1, seed, rounds = 4), index for index: for programs that continue a
// run made with Grain. It is not the default, since its order is visibly not random (lag-1 differences: chi-square
// 289,000 with 49 degrees of freedom at a million records, where feistel_v1 has about 49), and small sizes are slow
// (70 us per index at ten records).
//
// Method: four rounds of the Simon cipher's function over 2W bits, W = max(16, even ceil(log2(size - 1))) / 2, keys
// from std::seed_seq{seed}, cycle walking. Source: index_shuffle.cc of github.com/google/grain (Apache-2.0), which is
// tf.random_index_shuffle too.
class GrainPermutation {
 public:
  // Errors (invalid_argument): size < 1 or > 2^62, and the sizes 2^k + 1, k even from 16 on (65537, 262145, ...), where
  // Grain's function is no permutation: its block is one bit too short, so the last record never comes and another
  // comes twice.
  GrainPermutation(int64_t size, uint32_t seed);

  int64_t size() const { return static_cast<int64_t>(size_); }
  int64_t operator()(int64_t index) const;

 private:
  uint64_t size_;
  int half_bits_;
  std::array<uint32_t, 4> keys_;
};

// An order that Dataset::shuffle takes: the permutation of each epoch. shuffle(5) stands for shuffle(feistel_v1{5}).
struct feistel_v1 {
  uint64_t seed = 0;
  Permutation order(int64_t size, int64_t epoch) const { return {size, epoch_seed(seed, epoch)}; }
  std::string describe() const;
};

// As MapDataset.shuffle(seed = s) in Grain: epoch e has the seed (s + e) mod 2^32, so seeds s and s + 1 share orders.
struct grain_v1 {
  uint32_t seed = 0;
  GrainPermutation order(int64_t size, int64_t epoch) const { return {size, seed + static_cast<uint32_t>(epoch)}; }
  std::string describe() const;
};

}  // namespace tessera::data
