// The shuffle permutation: a bijection for every size, statistically random, and fixed for all versions.
#include "data/datasets/shuffle.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include "tests/data/expect_error.h"

namespace tessera::data::shuffle_test {
namespace {

std::vector<int64_t> images(int64_t size, uint64_t seed) {
  const Permutation permutation(size, seed);
  std::vector<int64_t> result(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i) result[static_cast<size_t>(i)] = permutation(i);
  return result;
}

void expect_bijection(int64_t size, uint64_t seed) {
  std::vector<bool> seen(static_cast<size_t>(size));
  for (const int64_t image : images(size, seed)) {
    ASSERT_TRUE(image >= 0 && image < size) << size;
    ASSERT_FALSE(seen[static_cast<size_t>(image)]) << size << " sends two indices to " << image;
    seen[static_cast<size_t>(image)] = true;
  }
}

// The chi-square statistic of `count` draws over equally likely bins.
double chi_square(const std::vector<int64_t>& bins, int64_t count) {
  const double expected = static_cast<double>(count) / static_cast<double>(bins.size());
  double sum = 0;
  for (const int64_t bin : bins) sum += (static_cast<double>(bin) - expected) * (static_cast<double>(bin) - expected);
  return sum / expected;
}

TEST(Shuffle, IsABijectionForEverySizeTo3000) {
  for (int64_t size = 1; size <= 3000; ++size) expect_bijection(size, 7);
}

TEST(Shuffle, IsABijectionAroundPowersOfTwo) {
  for (int k = 12; k <= 18; ++k) {
    for (const int64_t near : {-1, 0, 1}) expect_bijection((int64_t{1} << k) + near, 11);
  }
  expect_bijection(65537, 3);
  expect_bijection((1 << 20) + 1, 3);
}

TEST(Shuffle, StepsBetweenAdjacentRecordsLookRandom) {
  constexpr int64_t size = 1'000'000;
  for (const uint64_t seed : {0, 1, 2}) {
    const auto order = images(size, seed);
    std::vector<int64_t> bins(50);
    for (size_t i = 1; i < order.size(); ++i) {
      const int64_t step = (order[i] - order[i - 1] + size) % size;
      ++bins[static_cast<size_t>(step * 50 / size)];
    }
    EXPECT_LT(chi_square(bins, size - 1), 95) << "49 degrees of freedom, one in 10,000 is above 95";
  }
}

TEST(Shuffle, EveryIndexGoesEverywhereOverSeeds) {
  for (const int64_t size : {2, 3, 5, 10, 16, 100}) {
    constexpr int64_t seeds = 20'000;
    std::vector<int64_t> first(static_cast<size_t>(size)), last(static_cast<size_t>(size));
    for (int64_t seed = 0; seed < seeds; ++seed) {
      const Permutation permutation(size, static_cast<uint64_t>(seed));
      ++first[static_cast<size_t>(permutation(0))];
      ++last[static_cast<size_t>(permutation(size - 1))];
    }
    const double bound = static_cast<double>(size) + 5 * std::sqrt(2.0 * static_cast<double>(size)) + 10;
    EXPECT_LT(chi_square(first, seeds), bound) << size;
    EXPECT_LT(chi_square(last, seeds), bound) << size;
  }
}

TEST(Shuffle, HugeSizesStayInside) {
  const int64_t size = int64_t{1} << 62;
  const Permutation permutation(size, 5);
  for (int64_t i = 0; i < 1000; ++i) {
    const int64_t image = permutation(size - 1 - i);
    EXPECT_TRUE(image >= 0 && image < size);
  }
}

TEST(Shuffle, ConsecutiveSeedsShareNoEpoch) {
  std::map<uint64_t, int> seen;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    for (int64_t epoch = 0; epoch < 100; ++epoch) EXPECT_EQ(seen[epoch_seed(seed, epoch)]++, 0);
  }
}

TEST(Shuffle, TheOrderIsPinned) {
  EXPECT_EQ(images(10, 0), (std::vector<int64_t>{2, 7, 3, 9, 8, 0, 4, 5, 6, 1}));
  EXPECT_EQ(Permutation(65537, 3)(0), 37671);
  EXPECT_EQ(Permutation(int64_t{1} << 40, 3)(12345), 945051545605);
  EXPECT_EQ(epoch_seed(1, 2), 14405603053636386092u);
}

TEST(GrainShuffle, IsABijectionWhereItIsNotRefused) {
  for (const int64_t size : {1, 2, 3, 7, 100, 65536, 65538, 131073, 262144, 262146}) {
    const GrainPermutation order(size, 3);
    std::vector<bool> seen(static_cast<size_t>(size));
    for (int64_t i = 0; i < size; ++i) {
      const int64_t image = order(i);
      ASSERT_TRUE(image >= 0 && image < size) << size;
      ASSERT_FALSE(seen[static_cast<size_t>(image)]) << size;
      seen[static_cast<size_t>(image)] = true;
    }
  }
  for (const int64_t size : {65537, 262145, 1048577}) {
    expect_error(ErrorKind::invalid_argument, {"[shuffle] grain_v1 of", "loses the last record"},
                 [&] { GrainPermutation(size, 0); });
  }
}

TEST(Shuffle, RefusesSizesOutsideItsRange) {
  expect_error(ErrorKind::invalid_argument, {"[shuffle]", "0 records", "1 to 2^62"}, [] { Permutation(0, 0); });
  expect_error(ErrorKind::invalid_argument, {"[shuffle]"}, [] { Permutation((int64_t{1} << 62) + 1, 0); });
}

}  // namespace
}  // namespace tessera::data::shuffle_test
