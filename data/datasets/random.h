// Philox: counter-based random numbers that depend only on the seed and on a record's epoch and index.
#pragma once

#include <array>
#include <cstdint>

namespace tessera::data {

// A stream of random numbers for one record, a function of (seed, epoch, index) only. It is a
// UniformRandomBitGenerator. Prefer the functions here to the standard's distributions, whose results differ between
// standard libraries.
//
// Method: Philox4x64-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011; numpy.random.Philox), with
// the key (seed, epoch) and the counter (block, 0, 0, index), counted from 1 as numpy does.
class Philox {
 public:
  using result_type = uint64_t;

  Philox(uint64_t seed, uint64_t epoch, uint64_t index) : key_{seed, epoch}, index_(index) {}

  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return ~uint64_t{0}; }

  uint64_t operator()();
  double uniform();                 // in [0, 1), 53 bits
  int64_t integer(int64_t below);   // in [0, below), unbiased; Error (invalid_argument) if below < 1
  double normal();                  // mean 0, standard deviation 1 (Box and Muller)
  bool chance(double probability);  // true with this probability

 private:
  std::array<uint64_t, 2> key_;
  uint64_t index_, block_ = 0;
  std::array<uint64_t, 4> ready_{};
  int left_ = 0;
};

}  // namespace tessera::data
