// Streams shuffled, limited and mixed after packing, and streams that processes divide among them.
#include "data/streams/any_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "data/loader.h"
#include "tests/data/expect_error.h"

namespace tessera::data::any_stream_test {
namespace {

using Numbers = std::vector<int64_t>;
constexpr auto even = [](int64_t x) { return x % 2 == 0; };

template <class S>
Numbers all(const S& stream) {
  Numbers records;
  for (const int64_t record : stream) records.push_back(record);
  return records;
}

Numbers sorted(Numbers numbers) {
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

void append(Numbers& numbers, const Numbers& batch) { numbers.insert(numbers.end(), batch.begin(), batch.end()); }

// The records of `batches` batches; -7 stands for the end of an epoch.
Numbers read(Loader<Numbers>& loader, int batches) {
  Numbers numbers;
  for (int i = 0; i < batches; ++i) append(numbers, loader.next().value_or(Numbers{-7}));
  return numbers;
}

TEST(AnyStream, ShufflesWithinWindows) {
  const auto stream = range(20).filter(even).shuffle(4, 7);
  const Numbers first = all(stream);
  ASSERT_EQ(first.size(), 10u);
  EXPECT_EQ(sorted({first.begin(), first.begin() + 4}), (Numbers{0, 2, 4, 6}));
  EXPECT_EQ(sorted({first.begin() + 4, first.begin() + 8}), (Numbers{8, 10, 12, 14}));
  EXPECT_EQ(sorted({first.begin() + 8, first.end()}), (Numbers{16, 18}));
  EXPECT_EQ(all(stream), first);
  EXPECT_NE(all(range(20).filter(even).shuffle(4, 8)), first);
  EXPECT_EQ(stream.describe(), "range(20) | filter | shuffle(4, 7)");
  const auto large = range(1000).filter(even).shuffle(1000, 1);
  EXPECT_NE(all(large), sorted(all(large)));
  EXPECT_EQ(sorted(all(large)).back(), 998);
  Loader loader(large, as_vector, {.batch_size = 500});
  const Numbers epoch = *loader.next();
  EXPECT_EQ(loader.next(), std::nullopt);
  const Numbers another = *loader.next();
  EXPECT_NE(another, epoch);
  EXPECT_EQ(sorted(another), sorted(epoch));
}

TEST(AnyStream, WindowsOfOneEpochDiffer) {
  std::set<Numbers> orders;
  const Numbers numbers = all(range(400).filter([](int64_t) { return true; }).shuffle(8, 3));
  for (size_t window = 0; window < 50; ++window) {
    Numbers order;
    for (size_t i = 0; i < 8; ++i) order.push_back(numbers[8 * window + i] % 8);
    orders.insert(order);
  }
  EXPECT_GT(orders.size(), 45u);
}

TEST(AnyStream, LimitsEpochs) {
  EXPECT_EQ(all(range(20).filter(even).limit(3)), (Numbers{0, 2, 4}));
  EXPECT_EQ(all(range(4).filter(even).limit(3)), (Numbers{0, 2}));
  Loader finite(range(20).filter(even).limit(3), as_vector, {.batch_size = 3});
  EXPECT_EQ(read(finite, 4), (Numbers{0, 2, 4, -7, 0, 2, 4, -7}));
  Loader endless(range(10).repeat().filter(even).limit(4), as_vector, {.batch_size = 2});
  EXPECT_EQ(read(endless, 6), (Numbers{0, 2, 4, 6, -7, 8, 0, 2, 4, -7}));
  const auto shuffled = range(10).repeat().filter(even).shuffle(5, 1).limit(5);
  EXPECT_EQ(sorted(all(shuffled)), (Numbers{0, 2, 4, 6, 8}));
}

// Two passes over the larger one, which takes longer than two over the smaller one.
TEST(AnyStream, AMixGivesUpAfterAllOfItsRecords) {
  const auto kept =
      mix({1, 1}, range(30'000).repeat(), range(10).repeat()).filter([](int64_t x) { return x > 29'998; });
  Loader loader(kept, as_vector, {.batch_size = 2});
  EXPECT_EQ(loader.next(), (Numbers{29'999, 29'999}));
}

TEST(AnyStream, MixesByWeights) {
  const auto low = range(100).filter(even);
  const auto high = range(100).map([](int64_t x) { return 1000 + x; }).filter(even);
  EXPECT_EQ(all(mix({2, 1}, low, high).limit(6)), (Numbers{0, 1000, 2, 4, 1002, 6}));
  EXPECT_EQ(all(mix({1, 1}, range(3).filter(even), high)), (Numbers{0, 1000, 2, 1002}));
  // Where the first has ended, both begin anew; what is endless goes on.
  Loader loader(mix({1, 1}, range(3).filter(even), high), as_vector, {.batch_size = 4});
  EXPECT_EQ(read(loader, 3), (Numbers{0, 1000, 2, 1002, -7, 0, 1000, 2, 1002}));
  const auto endless = range(100).repeat().map([](int64_t x) { return 1000 + x; }).filter(even);
  Loader going(mix({1, 1}, range(3).filter(even), endless), as_vector, {.batch_size = 4});
  EXPECT_EQ(read(going, 3), (Numbers{0, 1000, 2, 1002, -7, 0, 1004, 2, 1006}));
  const std::vector<AnyStream<int64_t>> several{low, high.shuffle(3, 1), range(7).filter(even)};
  EXPECT_EQ(all(mix({1, 1, 1}, several)).size(), 14u);  // four turns of each, two of the fifth
  EXPECT_TRUE(mix({1, 1, 1}, several).describe().starts_with("mix(1 1 1; range(100) | filter; "));
}

TEST(AnyStream, MapsAndPacks) {
  const auto documents = range(50).map([](int64_t x) { return Numbers(static_cast<size_t>(x % 5 + 1), x); });
  const auto packed = documents.pack({.length = 8, .num_packing_bins = 3});
  std::vector<PackedRow<int64_t>> rows_in_order, shuffled;
  for (const auto& row : packed) rows_in_order.push_back(row);
  for (const auto& row : packed.shuffle(6, 2)) shuffled.push_back(row);
  ASSERT_EQ(shuffled.size(), rows_in_order.size());
  EXPECT_FALSE(shuffled == rows_in_order);
  EXPECT_TRUE(std::is_permutation(shuffled.begin(), shuffled.begin() + 6, rows_in_order.begin()));
  EXPECT_EQ(all(packed.limit(2).map([](const auto& row) { return row.tokens[0]; })).size(), 2u);
}

TEST(AnyStream, ErrorsComeInTheirPlaceAndCanBeTriedAgain) {
  std::atomic<int> failures = 1;
  const auto torn = range(40).map([&](int64_t x) {
    if (x == 18 && failures-- > 0) throw std::runtime_error("torn page");
    return x;
  });
  const auto stream = mix({1, 1}, torn.filter(even).shuffle(4, 1), range(100).filter(even)).shuffle(3, 2);
  failures = 0;
  Loader whole(stream, as_vector, {.batch_size = 3, .prefetch = 0});
  const Numbers expected = read(whole, 10);
  for (const int prefetch : {0, 2}) {
    failures = 1;
    Loader loader(stream, as_vector, {.batch_size = 3, .prefetch = prefetch});
    Numbers numbers;
    int errors = 0;
    while (numbers.size() < expected.size()) {
      try {
        append(numbers, *loader.next());
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("[next] record 18 of epoch 0: torn page"), std::string::npos);
        ++errors;
      }
    }
    EXPECT_EQ(errors, 1);
    EXPECT_EQ(numbers, expected);
  }
  const auto failing = [](int64_t) -> int64_t { throw std::runtime_error("no space"); };
  expect_error(ErrorKind::other, {"[next] what comes of record 0 of epoch 0", "no space"},
               [&] { Loader(range(9).filter(even).limit(3).map(failing), as_vector, {.batch_size = 1}).next(); });
}

TEST(AnyStream, RefusesWhatMakesNoSense) {
  const auto stream = range(9).filter(even);
  expect_error(ErrorKind::invalid_argument, {"[shuffle] a window of 0"}, [&] { stream.shuffle(0, 1); });
  expect_error(ErrorKind::invalid_argument, {"[limit] 0 records"}, [&] { stream.limit(0); });
  expect_error(ErrorKind::invalid_argument, {"[mix] 1 weights for 2"}, [&] { mix({1}, stream, stream); });
  expect_error(ErrorKind::invalid_argument, {"[mix] no datasets and no streams"},
               [] { mix({}, std::vector<AnyStream<int64_t>>()); });
  Loader loader(mix({1, 1}, stream, stream).limit(4), as_vector, {.batch_size = 2});
  for (const StreamMark& mark :
       {StreamMark{0, 1}, StreamMark{0, 0, 0, 0, {{0, 1}}}, StreamMark{0, 0, 0, 0, {{0, 1, 0, 0, {{0, 99}, {0, 1}}}}},
        StreamMark{0, -1, 0, 0, {{0, 1, 0, 0, {{}, {}}}}}, StreamMark{0, 0, 0, 0, {StreamMark::elsewhere()}}})
    expect_error(ErrorKind::invalid_argument, {"[restore] the state "}, [&] { loader.restore({2, mark}); });
  Loader shuffled(stream.shuffle(4, 1), as_vector, {.batch_size = 2});
  shuffled.restore({2, StreamMark{0, 0, 0, 5, {StreamMark{}}}});
  expect_error(ErrorKind::invalid_argument, {"[next] the loader's state continues at"}, [&] { shuffled.next(); });
}

// ---- divided streams ------------------------------------------------------------------------------------------------

std::vector<int64_t> document(int64_t x) { return Numbers(static_cast<size_t>(x * 7 % 11 + 1), x); }

auto divided_rows(int64_t parts, std::shared_ptr<std::atomic<int64_t>> made = nullptr) {
  return divided(parts, range(101).shuffle(3).repeat(), [made](const auto& part) {
    return part
        .map([made](int64_t x) {
          if (made) ++*made;
          return document(x);
        })
        .pack({.length = 16, .num_packing_bins = 2})
        .shuffle(5, 9)
        .map([](const PackedRow<int64_t>& row) {
          int64_t sum = 0;
          for (size_t i = 0; i < row.tokens.size(); ++i) sum = sum * 31 % 1'000'003 + row.tokens[i];
          return sum;
        });
  });
}

TEST(DividedStream, EachProcessReadsItsPartsAndTheBatchesAreThoseOfOne) {
  Loader alone(divided_rows(8), as_vector, {.batch_size = 16, .prefetch = 0});
  std::vector<Numbers> expected;
  for (int i = 0; i < 40; ++i) expected.push_back(*alone.next());
  for (const int64_t shards : {2, 4, 8}) {
    for (const int threads : {1, 3}) {
      std::vector<Numbers> joined(expected.size());
      for (int64_t index = 0; index < shards; ++index) {
        Loader loader(divided_rows(8), as_vector,
                      {.batch_size = 16, .shard = {index, shards}, .prefetch = 2, .num_threads = threads});
        for (Numbers& batch : joined) append(batch, *loader.next());
      }
      EXPECT_EQ(joined, expected) << shards << " shards, " << threads << " threads";
    }
  }
}

TEST(DividedStream, AProcessMakesAnNthOfTheRecords) {
  const auto of_all = std::make_shared<std::atomic<int64_t>>(0), of_one = std::make_shared<std::atomic<int64_t>>(0);
  Loader alone(divided_rows(8, of_all), as_vector, {.batch_size = 16, .prefetch = 0});
  Loader fourth(divided_rows(8, of_one), as_vector, {.batch_size = 16, .shard = {1, 4}, .prefetch = 0});
  for (int i = 0; i < 50; ++i) alone.next(), fourth.next();
  EXPECT_NEAR(static_cast<double>(*of_one) / static_cast<double>(*of_all), 0.25, 0.02);
}

// After each batch the processes' states are joined, and other processes go on with any number of them.
TEST(DividedStream, GoesOnAnywhereWithAnyNumberOfProcesses) {
  Loader alone(divided_rows(4), as_vector, {.batch_size = 8, .prefetch = 0});
  std::vector<Numbers> expected;
  for (int i = 0; i < 30; ++i) expected.push_back(*alone.next());
  LoaderState joined;
  for (size_t step = 0; step < 27; ++step) {
    const int64_t shards = int64_t{1} << step % 3;
    std::vector<LoaderState> states;
    Numbers batch;
    for (int64_t index = 0; index < shards; ++index) {
      Loader loader(
          divided_rows(4), as_vector,
          {.batch_size = 8, .shard = {index, shards}, .prefetch = static_cast<int>(step % 2), .num_threads = 2});
      loader.restore(joined);
      append(batch, *loader.next());
      states.push_back(LoaderState::from_json(loader.state().to_json()));
      EXPECT_EQ(states.back(), loader.state());
    }
    ASSERT_EQ(batch, expected[step]) << step;
    joined = joined_state(states);
    EXPECT_EQ(joined.global_next_index, static_cast<int64_t>(step + 1) * 8);
    for (const StreamMark& part : joined.stream->parts) EXPECT_FALSE(part.is_elsewhere());
  }
}

TEST(DividedStream, APlaceThatIsNotKnownIsReadAgain) {
  Loader alone(divided_rows(4), as_vector, {.batch_size = 8, .prefetch = 0});
  for (int i = 0; i < 5; ++i) alone.next();
  Loader first(divided_rows(4), as_vector, {.batch_size = 8, .shard = {0, 2}});
  for (int i = 0; i < 5; ++i) first.next();
  const Numbers expected = *alone.next();
  const Numbers lower(expected.begin() + 4, expected.end());
  for (const LoaderState& state : {LoaderState::from_json(first.state().to_json()), LoaderState{40}}) {
    for (const int prefetch : {0, 2}) {
      Loader second(divided_rows(4), as_vector,
                    {.batch_size = 8, .shard = {1, 2}, .prefetch = prefetch, .num_threads = 2});
      second.restore(state);
      EXPECT_EQ(*second.next(), lower);
    }
  }
}

TEST(DividedStream, RefusesWhatProcessesCannotShare) {
  const auto as_is = [](const auto& part) { return part.filter(even); };
  expect_error(ErrorKind::invalid_argument, {"[divided] 0 parts"}, [&] { divided(0, range(9).repeat(), as_is); });
  expect_error(ErrorKind::invalid_argument, {"[divided] a dataset that ends"}, [&] { divided(2, range(9), as_is); });
  expect_error(ErrorKind::invalid_argument, {"[divided] a part that ends"},
               [&] { divided(2, range(9).repeat(), [](const auto& part) { return part.filter(even).limit(3); }); });
  const auto stream = divided(4, range(99).repeat(), as_is);
  expect_error(ErrorKind::invalid_argument, {"[Loader] a batch of 6 rows", "4 parts"},
               [&] { Loader(stream, as_vector, {.batch_size = 6}); });
  expect_error(ErrorKind::invalid_argument, {"[Loader] 3 shards of a stream in 4 parts"},
               [&] { Loader(stream, as_vector, {.batch_size = 12, .shard = {0, 3}}); });
  Loader loader(stream, as_vector, {.batch_size = 4});
  expect_error(ErrorKind::invalid_argument, {"[restore] 3 records of a stream in 4 parts"},
               [&] { loader.restore({3}); });
  expect_error(ErrorKind::invalid_argument, {"[restore] the state has the places of 2 streams, and here are 4"},
               [&] { loader.restore({4, StreamMark{0, 1, 0, 0, {{}, {}}}}); });
  loader.next();
  const LoaderState state = loader.state();
  loader.next();
  expect_error(ErrorKind::invalid_argument, {"[joined_state] states of different places"},
               [&] { joined_state({state, loader.state()}); });
  expect_error(ErrorKind::invalid_argument, {"[joined_state] no states"}, [] { joined_state({}); });
}

}  // namespace
}  // namespace tessera::data::any_stream_test
