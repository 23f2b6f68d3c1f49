// Entropies of byte sources whose values are known.
#include "data/sources/entropy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/data/scratch_folder.h"

namespace tessera::data::entropy_test {
namespace {

TEST(Entropy, OfKnownTexts) {
  const auto periodic = ByteSource::from_string("abababababababab");
  EXPECT_NEAR(unigram_entropy(periodic), std::log(2), 1e-12);
  EXPECT_NEAR(bigram_entropy(periodic), 0, 1e-12);
  const auto constant = ByteSource::from_string("aaaa");
  EXPECT_EQ(unigram_entropy(constant), 0);
  EXPECT_EQ(bigram_entropy(constant), 0);
  const auto one = ByteSource::from_string("a");
  EXPECT_EQ(bigram_entropy(one), 0);
}

TEST(Entropy, OfUniformBytes) {
  std::string bytes;
  for (int a = 0; a < 256; ++a) {
    for (int b = 0; b < 256; ++b) bytes += {static_cast<char>(a), static_cast<char>(b)};
  }
  EXPECT_NEAR(unigram_entropy(ByteSource::from_string(bytes)), std::log(256), 1e-12);
}

TEST(Entropy, BigramByHand) {
  // Pairs of "aabab": aa 1, ab 2, ba 1. H = 3/4 H(1/3, 2/3) + 1/4 * 0.
  const double expected = 0.75 * (std::log(3.0) / 3 + std::log(1.5) * 2 / 3);
  EXPECT_NEAR(bigram_entropy(ByteSource::from_string("aabab")), expected, 1e-12);
}

TEST(Entropy, CountsPairsAcrossFiles) {
  const ScratchFolder folder;
  folder.write("1", "aa");
  folder.write("2", "b");
  folder.write("3", "ab");
  for (const int64_t map_from : {1, 2, 100}) {
    const auto source = ByteSource::open({folder.path()}, {.map_from = map_from});
    EXPECT_NEAR(bigram_entropy(source), bigram_entropy(ByteSource::from_string("aabab")), 1e-12);
    EXPECT_NEAR(unigram_entropy(source), unigram_entropy(ByteSource::from_string("aabab")), 1e-12);
  }
}

}  // namespace
}  // namespace tessera::data::entropy_test
