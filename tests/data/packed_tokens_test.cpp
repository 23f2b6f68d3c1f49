// Batches of packed rows: the order of documents, and which positions count in the loss.
#include "data/batches/packed_tokens.h"

#include <gtest/gtest.h>

#include <cmath>

#include "data/loader.h"
#include "data/sources/entropy.h"
#include "tests/data/expect_error.h"

namespace tessera::data::packed_tokens_test {
namespace {

using Ids = std::vector<int32_t>;

TEST(PackedTokens, CountWhatFollowsInOneDocument) {
  const auto documents = Dataset<Ids>::from_vector({{1, 2, 3}, {4, 5}, {6}});
  Loader loader(documents.pack({.length = 8}), packed_tokens, {.batch_size = 1});
  const PackedTokens batch = *loader.next();
  EXPECT_EQ(batch.inputs.value.to_host<int32_t>(), (Ids{1, 2, 3, 4, 5, 6, 0}));
  EXPECT_EQ(batch.targets.value.to_host<int32_t>(), (Ids{2, 3, 4, 5, 6, 0, 0}));
  EXPECT_EQ(batch.segment_ids.value.to_host<int32_t>(), (Ids{1, 1, 1, 2, 2, 3, 0}));
  EXPECT_EQ(batch.positions.value.to_host<int32_t>(), (Ids{0, 1, 2, 0, 1, 0, 0}));
  EXPECT_EQ(batch.weights.value.to_host<float>(), (std::vector<float>{1, 1, 0, 1, 0, 0, 0}));
  EXPECT_EQ(batch.weights.axes, (Axes{"batch", "seq"}));
}

TEST(PackedTokens, HaveTheStartsOfSegmentsWhoseNumberIsLimited) {
  const auto documents = Dataset<Ids>::from_vector({{1, 2, 3}, {4, 5}, {6}, {7}});
  const auto rows = documents.pack({.length = 8, .num_packing_bins = 2, .max_sequences_per_bin = 3});
  Loader loader(rows, PackedTokensBatcher{.max_segments = 4}, {.batch_size = 2});
  const PackedTokens batch = *loader.next();
  EXPECT_EQ(batch.segment_ids.value.to_host<int32_t>(), (Ids{1, 1, 1, 2, 2, 3, 0, 1, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(batch.segment_starts.value.to_host<int32_t>(), (Ids{0, 3, 5, 6, 0, 1, 7, 7}));
  Loader more(documents.pack({.length = 8}), PackedTokensBatcher{.max_segments = 3}, {.batch_size = 1});
  expect_error(ErrorKind::invalid_argument, {"[packed_tokens]", "more segments than max_segments = 3"},
               [&] { (void)more.next(); });
  expect_error(ErrorKind::invalid_argument, {"max_sequences_per_bin = -1"},
               [&] { documents.pack({.length = 4, .max_sequences_per_bin = -1}); });
}

TEST(PackedTokens, RefuseRowsThatMakeNoBatch) {
  const auto row = [](Ids tokens) { return PackedRow<int32_t>{tokens, Ids(tokens.size(), 1), Ids(tokens.size(), 0)}; };
  constexpr auto kind = ErrorKind::shape_mismatch;
  expect_error(kind, {"[packed_tokens]", "no rows"}, [] { packed_tokens({}); });
  expect_error(kind, {"rows of 1 tokens"}, [&] { packed_tokens({row({1})}); });
  expect_error(kind, {"rows of different lengths"}, [&] { packed_tokens({row({1, 2}), row({1, 2, 3})}); });
  expect_error(ErrorKind::invalid_argument, {"token -1 is below 0"}, [&] { packed_tokens({row({1, -1})}); });
}

TEST(TokenEntropies, AreThoseOfPairsWithinDocuments) {
  TokenEntropies entropies;
  EXPECT_EQ(entropies.unigram(), 0);
  EXPECT_EQ(entropies.bigram(), 0);
  entropies.add(Ids{70000, 1, 70000, 1});
  EXPECT_NEAR(entropies.unigram(), std::log(2), 1e-12);
  EXPECT_NEAR(entropies.bigram(), 0, 1e-12);
  entropies.add(Ids{1, 1, 1});  // after 1: 70000, 1, 1
  const double after_one = -(1 / 3.0) * std::log(1 / 3.0) - (2 / 3.0) * std::log(2 / 3.0);
  EXPECT_NEAR(entropies.bigram(), after_one * 3 / 5, 1e-12);
}

}  // namespace
}  // namespace tessera::data::packed_tokens_test
