// Chains of datasets: what each word of the chain does to sizes and orders, and what it refuses.
#include "data/dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "tests/data/expect_error.h"

namespace tessera::data {
namespace {

template <class T>
std::vector<T> epoch_of(const Dataset<T>& dataset, int64_t epoch = 0) {
  std::vector<T> records;
  for (int64_t i = 0; i < dataset.size(); ++i) records.push_back(dataset.at(epoch, i));
  return records;
}

std::vector<int64_t> iota(int64_t size) {
  std::vector<int64_t> numbers(static_cast<size_t>(size));
  std::iota(numbers.begin(), numbers.end(), int64_t{0});
  return numbers;
}

std::vector<int64_t> sorted(std::vector<int64_t> numbers) {
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

std::string text(const std::vector<uint8_t>& window) { return std::string(window.begin(), window.end()); }

TEST(Dataset, MapSliceAndVector) {
  const auto squares = range(10).map([](int64_t x) { return x * x; }).slice(2, 5);
  EXPECT_EQ(epoch_of(squares), (std::vector<int64_t>{4, 9, 16}));
  const auto words = Dataset<std::string>::from_vector({"a", "bc"}).map([](const std::string& s) { return s.size(); });
  EXPECT_EQ(epoch_of(words), (std::vector<size_t>{1, 2}));
}

TEST(Dataset, NothingRunsUntilARecordIsAskedFor) {
  int calls = 0;
  const auto counted = range(100).map([&](int64_t x) { return ++calls, x; }).shuffle(1).repeat().shard({1, 3}).batch(4);
  EXPECT_EQ(calls, 0);
  counted[2];
  EXPECT_EQ(calls, 4);
}

TEST(Dataset, EveryRecordOncePerEpochInAnotherOrder) {
  for (const int64_t size : {1, 2, 3, 10, 64, 65, 1000, 65537}) {
    const auto shuffled = range(size).shuffle(5);
    EXPECT_EQ(sorted(epoch_of(shuffled, 0)), iota(size));
    EXPECT_EQ(sorted(epoch_of(shuffled, 1)), iota(size));
    if (size >= 10) {
      EXPECT_NE(epoch_of(shuffled, 0), epoch_of(shuffled, 1));
      EXPECT_NE(epoch_of(shuffled, 0), epoch_of(range(size).shuffle(6)));
      EXPECT_EQ(epoch_of(shuffled, 1), epoch_of(range(size).shuffle(5), 1));
    }
  }
}

TEST(Dataset, RepeatJoinsEpochsThatAreEachShuffledAnew) {
  const auto shuffled = range(10).shuffle(3);
  const auto twice = shuffled.repeat(2), forever = shuffled.repeat();
  EXPECT_EQ(twice.size(), 20);
  EXPECT_TRUE(forever.is_endless());
  for (int64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(twice[i], shuffled.at(i / 10, i % 10));
    EXPECT_EQ(forever[i], twice[i]);
    EXPECT_EQ(twice.at(1, i), shuffled.at(2 + i / 10, i % 10));
  }
  EXPECT_EQ(sorted(epoch_of(twice.slice(10, 20))), iota(10));
}

TEST(Dataset, ShardsPartTheShuffledEpochEvenly) {
  const auto shuffled = range(103).shuffle(9);
  for (const int64_t count : {1, 2, 3, 4, 7, 103}) {
    std::vector<int64_t> all;
    for (int64_t index = 0; index < count; ++index) {
      const auto part = epoch_of(shuffled.shard({index, count}));
      EXPECT_EQ(part.size(), static_cast<size_t>(103 / count));
      all.insert(all.end(), part.begin(), part.end());
    }
    const auto whole = epoch_of(shuffled.slice(0, 103 / count * count));
    EXPECT_EQ(sorted(all), sorted(whole));
  }
  EXPECT_EQ(range(100).repeat().shard({3, 4})[30], 23);
}

TEST(Dataset, BatchDropsTheRemainder) {
  const auto batches = range(10).batch(4);
  EXPECT_EQ(epoch_of(batches), (std::vector<std::vector<int64_t>>{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(range(10).repeat().batch(4)[2], (std::vector<int64_t>{8, 9, 0, 1}));
}

TEST(Windows, OverlapByOneAndDropTheRemainder) {
  const auto source = ByteSource::from_string("abcdefghij");
  const auto three = windows(source, 4);
  ASSERT_EQ(three.size(), 3);
  EXPECT_EQ(text(three[0]), "abcd");
  EXPECT_EQ(text(three[2]), "ghij");
  EXPECT_EQ(windows(source, 5).size(), 2) << "j is dropped";
  EXPECT_EQ(windows(source, 10).size(), 1);
  EXPECT_EQ(text(windows(source, 3, 5)[1]), "fgh");
  EXPECT_EQ(windows(source, 1).size(), 10);
}

TEST(Split, TheLastRecordsAreForValidation) {
  const auto [train, validation] = train_validation_split(range(100), 0.1);
  EXPECT_EQ(epoch_of(train), iota(90));
  EXPECT_EQ(validation.size(), 10);
  EXPECT_EQ(validation[0], 90);
  EXPECT_EQ(train_validation_split(range(2), 0.001).validation[0], 1);
}

TEST(Dataset, MistakesAreErrorsThatNameBothNumbers) {
  constexpr auto bad = ErrorKind::bad_argument;
  const auto ten = range(10);
  expect_error(bad, {"[at]", "record 10", "[0, 10)"}, [&] { ten[10]; });
  expect_error(bad, {"[at]", "record -1"}, [&] { ten[-1]; });
  expect_error(bad, {"[at]", "endless"}, [&] { ten.repeat().at(1, 0); });
  expect_error(bad, {"0 records"}, [] { range(0); });
  expect_error(bad, {"from_vector", "0 records"}, [] { Dataset<int>::from_vector({}); });
  expect_error(bad, {"[shuffle]", "shuffle first"}, [&] { ten.repeat().shuffle(0); });
  expect_error(bad, {"[slice]", "[3, 11) of 10"}, [&] { ten.slice(3, 11); });
  expect_error(bad, {"[slice]"}, [&] { ten.slice(3, 3); });
  expect_error(bad, {"[repeat]", "0 times"}, [&] { ten.repeat(0); });
  expect_error(bad, {"[repeat]", "2^63"}, [&] { ten.repeat(endless / 2); });
  expect_error(bad, {"[shard]", "shard 2 of 2"}, [&] { ten.shard({2, 2}); });
  expect_error(bad, {"[shard]", "10 records for 11 shards"}, [&] { ten.shard({0, 11}); });
  expect_error(bad, {"[batch]", "10 records for batches of 11"}, [&] { ten.batch(11); });
  expect_error(bad, {"[batch]", "batches of 0"}, [&] { ten.batch(0); });
  expect_error(bad, {"[windows]", "3 values", "window of 4"}, [] { windows(ByteSource::from_string("abc"), 4); });
  expect_error(bad, {"[windows]", "length 0"}, [] { windows(ByteSource::from_string("abc"), 0); });
  expect_error(bad, {"split first, then shuffle"}, [&] { train_validation_split(ten.shuffle(0), 0.1); });
  expect_error(bad, {"split first, then repeat"}, [&] { train_validation_split(ten.repeat(), 0.1); });
  expect_error(bad, {"fraction 1.5"}, [&] { train_validation_split(ten, 1.5); });
  expect_error(bad, {"none for training"}, [&] { train_validation_split(ten, 0.99); });
}

}  // namespace
}  // namespace tessera::data
