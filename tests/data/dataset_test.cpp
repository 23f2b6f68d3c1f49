// Chains of datasets: the effect of each operation on sizes and orders, and its errors.
#include "data/datasets/dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "data/datasets/combine.h"
#include "data/sources/windows.h"
#include "tests/data/expect_error.h"

namespace tessera::data::dataset_test {
namespace {

template <class T, class Node>
std::vector<T> epoch_of(const Dataset<T, Node>& dataset, int64_t epoch = 0) {
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

TEST(Dataset, RepeatJoinsEpochsThatAreEachShuffledAgain) {
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

TEST(Dataset, SlicesHaveSteps) {
  EXPECT_EQ(epoch_of(range(10).slice(1, 8, 3)), (std::vector<int64_t>{1, 4, 7}));
  EXPECT_EQ(epoch_of(range(10).slice(9, 10, 100)), (std::vector<int64_t>{9}));
  EXPECT_EQ(epoch_of(range(10).slice(2, 10, endless)), (std::vector<int64_t>{2}));
  EXPECT_EQ(range(10).repeat().slice(5, endless, 2)[4], 3);
}

// A split by slices must not leak records from one part into the other in a later epoch.
TEST(Dataset, SlicesOfShuffledDatasetsHaveTheSameRecordsInEveryEpoch) {
  const auto expect_fixed = [](const Dataset<int64_t>& shuffled) {
    const auto training = shuffled.slice(0, 24), validation = shuffled.slice(24, 30);
    EXPECT_FALSE(training.reshuffles());
    EXPECT_EQ(training.shuffle(1).reshuffles(), true);
    std::vector<int64_t> all = epoch_of(training, 2);
    EXPECT_EQ(all, epoch_of(training));
    EXPECT_EQ(epoch_of(training.repeat(2)).back(), all.back());
    EXPECT_EQ(sorted(epoch_of(training.shuffle(1), 3)), sorted(all));
    EXPECT_NE(epoch_of(training.shuffle(1), 3), epoch_of(training.shuffle(1), 4));
    const auto others = epoch_of(validation, 1);
    all.insert(all.end(), others.begin(), others.end());
    EXPECT_EQ(sorted(all), iota(30));
  };
  expect_fixed(range(30).shuffle(5));
  expect_fixed(range(30).shuffle(grain_v1{5}));
  expect_fixed(range(30).window_shuffle(30, 5));
  expect_fixed(concat(range(10), range(20).map([](int64_t x) { return x + 10; })).shuffle(2));
  expect_fixed(range(30).shuffle(5).map([](int64_t x) { return x; }).slice(0, 30));
  expect_fixed(Dataset<int64_t>::from_function(30, [](int64_t epoch, int64_t i) { return (i + epoch) % 30; }, true));
}

TEST(Dataset, SlicesKeepTheRandomNumbersOfEachEpoch) {
  const auto numbers = range(20).random_map(3, [](int64_t, Philox& random) { return random.integer(1 << 30); });
  EXPECT_EQ(numbers.slice(5, 9).at(2, 1), numbers.at(2, 6));
  EXPECT_NE(numbers.slice(5, 9).at(2, 1), numbers.slice(5, 9).at(1, 1));
  expect_error(ErrorKind::invalid_argument, {"[slice]", "shuffled and mapped at random; slice first"},
               [&] { numbers.shuffle(1).slice(0, 3); });
  EXPECT_EQ(numbers.shuffle(1).repeat().slice(25, 30)[0], numbers.shuffle(1).at(1, 5));
}

TEST(Dataset, IndicesAndRandomNumbersAreTheRecordsOwn) {
  EXPECT_EQ(epoch_of(range(3).map([](int64_t x) { return 10 * x; }).map_with_index([](int64_t i, int64_t x) {
              return x + i;
            })),
            (std::vector<int64_t>{0, 11, 22}));
  const auto drawn = range(100).random_map(7, [](int64_t, Philox& random) { return random(); });
  const auto first = epoch_of(drawn);
  EXPECT_EQ(epoch_of(drawn), first);
  EXPECT_EQ(drawn[57], first[57]);
  EXPECT_NE(epoch_of(drawn, 1), first);
  EXPECT_NE(epoch_of(range(100).random_map(8, [](int64_t, Philox& random) { return random(); })), first);
  EXPECT_EQ(std::set<uint64_t>(first.begin(), first.end()).size(), 100u);
}

TEST(Dataset, AWindowShuffleStaysInItsWindow) {
  for (const int64_t window : {1, 4, 7, 100}) {
    const auto shuffled = range(30).window_shuffle(window, 3);
    const auto order = epoch_of(shuffled);
    EXPECT_EQ(sorted(order), iota(30));
    for (int64_t i = 0; i < 30; ++i) EXPECT_EQ(order[static_cast<size_t>(i)] / window, i / window);
    if (window > 5) {
      EXPECT_NE(order, iota(30));
      EXPECT_NE(order, epoch_of(shuffled, 1));
    }
  }
  EXPECT_EQ(range(30).repeat().window_shuffle(8, 3)[1000] / 8, 1000 % 30 / 8);
}

TEST(Dataset, ACacheComputesEachRecordOnce) {
  int calls = 0;
  const auto cached = range(5).map([&](int64_t x) { return ++calls, x * x; }).cache();
  for (int64_t epoch = 0; epoch < 3; ++epoch)
    EXPECT_EQ(epoch_of(cached, epoch), (std::vector<int64_t>{0, 1, 4, 9, 16}));
  EXPECT_EQ(calls, 5);
  EXPECT_EQ(cached.shuffle(1).map([](int64_t x) { return x; })[0], epoch_of(cached.shuffle(1))[0]);
  EXPECT_EQ(calls, 5);
}

TEST(Dataset, CustomSourcesAndDescriptions) {
  struct Squares {
    int64_t size() const { return 4; }
    int64_t operator[](int64_t i) const { return i * i; }
    std::string describe() const { return "squares"; }
  };
  const auto squares = from_source(Squares{});
  EXPECT_EQ(epoch_of(squares), (std::vector<int64_t>{0, 1, 4, 9}));
  int64_t sum = 0;
  for (const int64_t x : squares) sum += x;
  EXPECT_EQ(sum, 14);
  EXPECT_EQ(squares.shuffle(5).repeat().describe(), "squares | shuffle(feistel_v1 5) | repeat()");
  EXPECT_EQ(range(9).slice(1, 9, 2).shard({1, 2}).batch(2).describe(),
            "range(9) | slice(1, 9, 2) | shard 1 of 2 | batch(2)");
}

TEST(Dataset, AnyChainOfOneTypeIsADataset) {
  const std::vector<Dataset<int64_t>> chains = {range(3), range(3).shuffle(1), range(3).repeat(2)};
  EXPECT_EQ(chains[2].size(), 6);
  EXPECT_TRUE(chains[1].reshuffles());
  EXPECT_EQ(sorted(epoch_of(chains[1].map([](int64_t x) { return x; }))), iota(3));
  EXPECT_EQ(chains[2].describe(), "range(3) | repeat(2)");
}

TEST(Dataset, ConcatAndZip) {
  const auto numbers = concat(range(2), range(3).map([](int64_t x) { return 10 * x; }), range(1));
  EXPECT_EQ(epoch_of(numbers), (std::vector<int64_t>{0, 1, 0, 10, 20, 0}));
  const auto pairs = zip(range(3), range(3).map([](int64_t x) { return std::to_string(x); }));
  EXPECT_EQ(pairs[2], (std::tuple<int64_t, std::string>{2, "2"}));
  EXPECT_EQ(zip(range(3).repeat(), range(4).repeat())[5], (std::tuple<int64_t, int64_t>{2, 1}));
  EXPECT_EQ(numbers.describe(), "concat(range(2); range(3) | map; range(1))");
}

TEST(Mix, TakesTurnsInProportion) {
  const auto letter = [](char c, int64_t n) { return range(n).map([c](int64_t) { return c; }); };
  const auto spelled = [](const auto& dataset) {
    const auto letters = epoch_of(dataset);
    return std::string(letters.begin(), letters.end());
  };
  EXPECT_EQ(spelled(mix({0.7, 0.3}, letter('a', 7), letter('b', 100))), "abaaabaaba");
  EXPECT_EQ(spelled(mix({1, 1, 1}, letter('a', 9), letter('b', 1), letter('c', 9))), "abca");
  EXPECT_EQ(spelled(mix({2}, letter('a', 3))), "aaa");
  for (const auto& weights : std::vector<std::vector<double>>{{1, 2}, {0.5, 0.25}, {3.14159, 1}, {1, 99}}) {
    const auto mixed = mix(weights, letter('a', 40), letter('b', 70));
    int64_t a = 0, b = 0;
    for (const char c : mixed) ++(c == 'a' ? a : b);
    EXPECT_TRUE(a <= 40 && b <= 70 && (a == 40 || b == 70)) << a << " " << b;
    EXPECT_NEAR(static_cast<double>(a) * weights[1], static_cast<double>(b) * weights[0], weights[0] + weights[1]);
  }
}

TEST(Mix, GivesEveryRecordOfEachInItsOrder) {
  const auto mixed =
      mix({0.6, 0.4}, range(10).shuffle(1).repeat(), range(5).map([](int64_t x) { return -1 - x; }).repeat());
  EXPECT_TRUE(mixed.is_endless());
  std::vector<int64_t> first, second;
  for (int64_t i = 0; i < 100; ++i) (mixed[i] >= 0 ? first : second).push_back(mixed[i]);
  EXPECT_EQ(first.size(), 60u);
  for (int64_t i = 0; i < 60; ++i) EXPECT_EQ(first[static_cast<size_t>(i)], range(10).shuffle(1).repeat()[i]);
  for (int64_t i = 0; i < 40; ++i) EXPECT_EQ(second[static_cast<size_t>(i)], -1 - i % 5);
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

TEST(Dataset, IndicesBeyondTheLargestNumberAreErrors) {
  constexpr auto bad = ErrorKind::invalid_argument;
  constexpr int64_t last = endless - 1;
  const auto forever = range(3).repeat();
  EXPECT_EQ(forever[last], last % 3);
  expect_error(bad, {"[at]", "beyond 2^63"}, [&] { forever.slice(1, endless, 2)[last]; });
  expect_error(bad, {"[at]", "beyond 2^63"}, [&] { forever.shard({0, 2})[last]; });
  expect_error(bad, {"[at]", "beyond 2^63"}, [&] { forever.batch(2)[last]; });
  expect_error(bad, {"[at]", "beyond 2^63"}, [] { range(3).repeat(4).at(endless / 3, 0); });
}

TEST(Dataset, HugeOnesCostNothing) {
  const auto records = range(int64_t{1} << 40).shuffle(3).repeat();
  EXPECT_EQ(records[(int64_t{1} << 41) + 12345], records.slice(0, endless)[(int64_t{1} << 41) + 12345]);
  EXPECT_LT(records[(int64_t{1} << 60)], int64_t{1} << 40);
}

TEST(Dataset, ASliceOfNothingHasNoRecords) {
  for (const int64_t part : {0, 1, 2, 3}) {
    const RecordSpan span = even_split(3, {part, 4, false});
    EXPECT_EQ(epoch_of(range(3).slice(span.begin, span.end)), part < 3 ? std::vector{part} : std::vector<int64_t>{});
  }
  EXPECT_EQ(range(5).slice(5, 5, 3).size(), 0);
  EXPECT_EQ(epoch_of(range(5).slice(2, 2).map([](int64_t x) { return x + 1; }).shuffle(1).window_shuffle(4, 1)),
            std::vector<int64_t>{});
  expect_error(ErrorKind::invalid_argument, {"[at]", "record 0"}, [] { range(5).slice(2, 2)[0]; });
}

TEST(Dataset, MistakesAreErrorsThatNameBothNumbers) {
  constexpr auto bad = ErrorKind::invalid_argument;
  const auto ten = range(10);
  expect_error(bad, {"[at]", "record 10", "[0, 10)"}, [&] { ten[10]; });
  expect_error(bad, {"[at]", "record -1"}, [&] { ten[-1]; });
  expect_error(bad, {"[at]", "endless"}, [&] { ten.repeat().at(1, 0); });
  expect_error(bad, {"0 records"}, [] { range(0); });
  expect_error(bad, {"from_vector", "0 records"}, [] { Dataset<int>::from_vector({}); });
  expect_error(bad, {"[shuffle]", "shuffle first"}, [&] { ten.repeat().shuffle(0); });
  expect_error(bad, {"[slice]", "[3, 11) of 10"}, [&] { ten.slice(3, 11); });
  expect_error(bad, {"[slice]"}, [&] { ten.slice(3, 2); });
  expect_error(bad, {"[repeat]", "0 records"}, [&] { ten.slice(3, 3).repeat(); });
  expect_error(bad, {"[stream]", "0 records"}, [&] { ten.slice(3, 3).filter([](int64_t) { return true; }); });
  expect_error(bad, {"[slice]", "step of 0"}, [&] { ten.slice(0, 3, 0); });
  expect_error(bad, {"[window_shuffle]", "0 records"}, [&] { ten.window_shuffle(0, 1); });
  expect_error(bad, {"[window_shuffle]", "2^62"}, [&] { ten.repeat().window_shuffle(endless, 1); });
  expect_error(bad, {"[cache]", "cache first, then shuffle"}, [&] { ten.shuffle(1).cache(); });
  expect_error(bad, {"[cache]", "cache first, then repeat"}, [&] { ten.repeat().cache(); });
  expect_error(bad, {"[concat]", "then repeat"}, [&] { concat(ten.repeat(), ten); });
  expect_error(bad, {"[zip]", "10 and 3"}, [&] { zip(ten, range(3)); });
  expect_error(bad, {"[zip]", "10 and endless"}, [&] { zip(ten, ten.repeat()); });
  expect_error(bad, {"[mix]", "1 weights for 2"}, [&] { mix({1}, ten, ten); });
  expect_error(bad, {"[mix]", "more than 0"}, [&] { mix({1, 0}, ten, ten); });
  expect_error(bad, {"[mix]", "more than 0"}, [&] { mix({1, -1}, ten, ten); });
  expect_error(bad, {"[mix]", "more than 0"}, [&] { mix({1, std::nan("")}, ten, ten); });
  expect_error(bad, {"[mix]", "more than 0"}, [&] { mix({1, INFINITY}, ten, ten); });
  expect_error(bad, {"[mix]", "1/10,000"}, [&] { mix({1, 1e-6}, ten, ten); });
  expect_error(bad, {"[shuffle]", "grain_v1 of 65537"}, [] { range(65537).shuffle(grain_v1{1}); });
  expect_error(bad, {"[repeat]", "0 times"}, [&] { ten.repeat(0); });
  expect_error(bad, {"[repeat]", "-1 times"}, [&] { ten.repeat(-1); });
  expect_error(bad, {"[repeat]", "0 times"}, [&] { ten.repeat().repeat(0); });
  expect_error(bad, {"[repeat]", "2^63"}, [&] { ten.repeat(endless / 2); });
  expect_error(bad, {"[shard]", "shard 2 of 2"}, [&] { ten.shard({2, 2}); });
  expect_error(bad, {"[shard]", "10 records for 11 shards"}, [&] { ten.shard({0, 11}); });
  expect_error(bad, {"[batch]", "10 records for batches of 11"}, [&] { ten.batch(11); });
  expect_error(bad, {"[batch]", "batches of 2199023255552", "2^40"}, [&] { ten.repeat().batch(int64_t{1} << 41); });
  expect_error(bad, {"[batch]", "batches of 0"}, [&] { ten.batch(0); });
  expect_error(bad, {"[windows]", "3 values", "window of 4"}, [] { windows(ByteSource::from_string("abc"), 4); });
  expect_error(bad, {"[windows]", "length 0"}, [] { windows(ByteSource::from_string("abc"), 0); });
  expect_error(bad, {"split first, then shuffle"}, [&] { train_validation_split(ten.shuffle(0), 0.1); });
  expect_error(bad, {"split first, then repeat"}, [&] { train_validation_split(ten.repeat(), 0.1); });
  expect_error(bad, {"fraction 1.5"}, [&] { train_validation_split(ten, 1.5); });
  expect_error(bad, {"none for training"}, [&] { train_validation_split(ten, 0.99); });
}

}  // namespace
}  // namespace tessera::data::dataset_test
