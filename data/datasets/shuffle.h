// Keyed permutations of [0, n) that are computed index by index, without a buffer.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>

namespace tessera::data {

// Returns the seed for an epoch of a dataset that is shuffled with `seed`. It is a hash, so that consecutive seeds do
// not share orders.
uint64_t epoch_seed(uint64_t seed, int64_t epoch);

namespace detail {

inline uint64_t murmur_finalizer(uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccd;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53;
  return x ^ (x >> 33);
}

}  // namespace detail

// A pseudo-random bijection of [0, size) chosen by `seed`. It takes 64 bytes for any size.
//
// Method (feistel_v1): a balanced Feistel network of 6 rounds over the smallest domain of an even number of bits that
// holds every index. The round function is MurmurHash3's 64-bit finalizer of the half and a round key. An image outside
// [0, size) is sent through the network again until it is inside (cycle walking), which takes at most four passes on
// average. This gives a bijection for every size from 1 to 2^62. The values are stable across versions of the library:
// a saved loader state replays the same order in every later version.
class Permutation {
 public:
  // Makes the keys of the permutation. Error (invalid_argument): size < 1 or size > 2^62.
  Permutation(int64_t size, uint64_t seed);

  int64_t size() const { return static_cast<int64_t>(size_); }

  // Returns the image of `index`, which must be in [0, size).
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

// Computes Grain's index_shuffle(index, max_index = size - 1, seed, rounds = 4), index for index, for programs that
// continue a run made with Grain. It is not the default, because its order is visibly not random: the chi-square of
// lag-1 differences is 289,000 with 49 degrees of freedom at a million records; feistel_v1 has about 49. Small sizes
// are also slow (70 us per index at ten records).
//
// Method: four rounds of the Simon cipher's function over 2W bits, W = max(16, even ceil(log2(size - 1))) / 2, keys
// from std::seed_seq{seed}, cycle walking. Source: index_shuffle.cc of github.com/google/grain (Apache-2.0), which is
// tf.random_index_shuffle too.
class GrainPermutation {
 public:
  // Makes the keys of the permutation.
  // Errors (invalid_argument)
  //   size < 1 or > 2^62
  //   the sizes 2^k + 1, k even from 16 on (65537, 262145, ...). For these, Grain's function is not a permutation: its
  //     block is one bit too short, so the last record never comes and another comes twice.
  GrainPermutation(int64_t size, uint32_t seed);

  int64_t size() const { return static_cast<int64_t>(size_); }
  int64_t operator()(int64_t index) const;

 private:
  uint64_t size_;
  int half_bits_;
  std::array<uint32_t, 4> keys_;
};

// The default order of Dataset::shuffle: shuffle(5) is shuffle(feistel_v1{5}). An order gives the permutation of each
// epoch.
struct feistel_v1 {
  uint64_t seed = 0;
  Permutation order(int64_t size, int64_t epoch) const { return {size, epoch_seed(seed, epoch)}; }
  std::string describe() const;
};

// The order of Grain's MapDataset.shuffle(seed = s). Epoch e has seed (s + e) mod 2^32, so seeds s and s + 1 share
// orders.
struct grain_v1 {
  uint32_t seed = 0;
  GrainPermutation order(int64_t size, int64_t epoch) const { return {size, seed + static_cast<uint32_t>(epoch)}; }
  std::string describe() const;
};

}  // namespace tessera::data
