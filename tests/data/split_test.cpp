// How records are split over processes, compared with a table, and counter-based random numbers.
#include <gtest/gtest.h>

#include <vector>

#include "data/datasets/random.h"
#include "data/datasets/shard_options.h"
#include "tests/data/expect_error.h"

namespace tessera::data::split_test {
namespace {

std::vector<RecordSpan> even(int64_t size, int64_t count, bool drop) {
  std::vector<RecordSpan> spans;
  for (int64_t i = 0; i < count; ++i) spans.push_back(even_split(size, {i, count, drop}));
  return spans;
}

TEST(Split, IsGrainsTable) {
  using Spans = std::vector<RecordSpan>;
  EXPECT_EQ(even(10, 3, false), (Spans{{0, 4}, {4, 7}, {7, 10}}));
  EXPECT_EQ(even(10, 3, true), (Spans{{0, 3}, {3, 6}, {6, 9}}));
  EXPECT_EQ(even(11, 4, false), (Spans{{0, 3}, {3, 6}, {6, 9}, {9, 11}}));
  EXPECT_EQ(even(11, 4, true), (Spans{{0, 2}, {2, 4}, {4, 6}, {6, 8}}));
  EXPECT_EQ(even(10, 4, false), (Spans{{0, 3}, {3, 6}, {6, 8}, {8, 10}}));
  EXPECT_EQ(even(3, 4, false), (Spans{{0, 1}, {1, 2}, {2, 3}, {3, 3}}));
  for (const RecordSpan& span : even(3, 4, true)) EXPECT_EQ(span.size(), 0);
}

TEST(Split, PartsAreDisjointAndWhole) {
  for (int64_t size = 0; size < 40; ++size) {
    for (int64_t count = 1; count < 9; ++count) {
      int64_t end = 0, strided = 0;
      for (int64_t i = 0; i < count; ++i) {
        const RecordSpan kept = even_split(size, {i, count, false});
        EXPECT_EQ(kept.begin, end);
        end = kept.end;
        strided += strided_split(size, {i, count, false});
        EXPECT_EQ(kept.size(), strided_split(size, {i, count, false}));
        EXPECT_EQ(even_split(size, {i, count}).size(), size / count) << "all alike";
        EXPECT_EQ(strided_split(size, {i, count}), size / count);
      }
      EXPECT_EQ(end, size);
      EXPECT_EQ(strided, size);
    }
  }
}

TEST(Split, RefusesShardsThatAreNone) {
  for (const ShardOptions& shard : {ShardOptions{-1, 2}, {2, 2}, {0, 0}})
    expect_error(ErrorKind::invalid_argument, {"[shard]", "expected 0 <= index < count"},
                 [&] { even_split(5, shard); });
}

// numpy: np.random.Philox(key=[12345, 2], counter=[0, 0, 0, 7]).random_raw(5)
TEST(Philox, IsNumpys) {
  Philox random(12345, 2, 7);
  for (const uint64_t expected :
       {0x13898ae70a66c7c5u, 0xef01151a096a7decu, 0x4b96aca77594d434u, 0x4c8106a013a9fb65u, 0xc1367d1109b51d3cu})
    EXPECT_EQ(random(), expected);
}

TEST(Philox, NumbersAreInTheirRanges) {
  double sum = 0, squares = 0;
  std::vector<int> faces(6);
  for (uint64_t i = 0; i < 2000; ++i) {
    Philox random(1, 0, i);
    const double u = random.uniform(), n = random.normal();
    ASSERT_TRUE(u >= 0 && u < 1);
    ++faces[static_cast<size_t>(random.integer(6))];
    sum += n;
    squares += n * n;
  }
  EXPECT_NEAR(sum / 2000, 0, 0.1);
  EXPECT_NEAR(squares / 2000, 1, 0.15);
  for (const int face : faces) EXPECT_NEAR(face, 2000.0 / 6, 90);
  expect_error(ErrorKind::invalid_argument, {"[integer]", "0"}, [] { Philox(1, 1, 1).integer(0); });
}

}  // namespace
}  // namespace tessera::data::split_test
