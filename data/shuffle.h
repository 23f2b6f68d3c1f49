// Shuffling by arithmetic: a keyed permutation of [0, n) that is computed index by index, with no buffer.
#pragma once

#include <array>
#include <cstdint>

namespace tessera::data {

// A pseudo-random bijection of [0, size) chosen by `seed`; 64 bytes whatever the size.
//
// Method (feistel_v1): a balanced Feistel network of 6 rounds over the smallest domain of an even number of bits that
// holds every index, its round function MurmurHash3's 64-bit finalizer of the half and a round key; an image outside
// [0, size) is sent through the network again until it falls inside (cycle walking), at most four times on average.
// So it is a bijection for every size from 1 to 2^62. The values are part of the library's promise: a saved loader
// state replays the same order in every later version.
class Permutation {
 public:
  // Error (bad_argument) if size < 1 or size > 2^62.
  Permutation(int64_t size, uint64_t seed);

  int64_t size() const { return static_cast<int64_t>(size_); }

  // The image of index, which must lie in [0, size).
  int64_t operator()(int64_t index) const;

 private:
  static constexpr int kRounds = 6;

  uint64_t once(uint64_t x) const;

  uint64_t size_;
  int half_bits_;
  std::array<uint64_t, kRounds> keys_;
};

// A seed for epoch `epoch` of a stream seeded with `seed`: a hash, so that neighbouring seeds share no epoch.
uint64_t epoch_seed(uint64_t seed, int64_t epoch);

}  // namespace tessera::data
