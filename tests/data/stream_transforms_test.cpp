// Streams that are shuffled, limited and mixed after packing, and streams that are divided among processes.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "data/loader.h"
#include "data/streams/stream.h"
#include "tests/data/expect_error.h"

namespace tessera::data::stream_transforms_test {
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

// Reads `batches` batches and returns their records. -7 is the end of an epoch.
Numbers read(Loader<Numbers>& loader, int batches) {
  Numbers numbers;
  for (int i = 0; i < batches; ++i) append(numbers, loader.next().value_or(Numbers{-7}));
  return numbers;
}

TEST(StreamTransforms, ShufflesWithinWindows) {
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

TEST(StreamTransforms, WindowsOfOneEpochDiffer) {
  std::set<Numbers> orders;
  const Numbers numbers = all(range(400).filter([](int64_t) { return true; }).shuffle(8, 3));
  for (size_t window = 0; window < 50; ++window) {
    Numbers order;
    for (size_t i = 0; i < 8; ++i) order.push_back(numbers[8 * window + i] % 8);
    orders.insert(order);
  }
  EXPECT_GT(orders.size(), 45u);
}

TEST(StreamTransforms, LimitsEpochs) {
  EXPECT_EQ(all(range(20).filter(even).limit(3)), (Numbers{0, 2, 4}));
  EXPECT_EQ(all(range(4).filter(even).limit(3)), (Numbers{0, 2}));
  Loader finite(range(20).filter(even).limit(3), as_vector, {.batch_size = 3});
  EXPECT_EQ(read(finite, 4), (Numbers{0, 2, 4, -7, 0, 2, 4, -7}));
  Loader endless(range(10).repeat().filter(even).limit(4), as_vector, {.batch_size = 2});
  EXPECT_EQ(read(endless, 6), (Numbers{0, 2, 4, 6, -7, 8, 0, 2, 4, -7}));
  const auto shuffled = range(10).repeat().filter(even).shuffle(5, 1).limit(5);
  EXPECT_EQ(sorted(all(shuffled)), (Numbers{0, 2, 4, 6, 8}));
}

// The mix gives up after two passes over the larger dataset, not over the smaller one.
TEST(StreamTransforms, AMixGivesUpAfterAllOfItsRecords) {
  const auto kept =
      mix({1, 1}, range(30'000).repeat(), range(10).repeat()).filter([](int64_t x) { return x > 29'998; });
  Loader loader(kept, as_vector, {.batch_size = 2});
  EXPECT_EQ(loader.next(), (Numbers{29'999, 29'999}));
}

TEST(StreamTransforms, MixesByWeights) {
  const auto low = range(100).filter(even);
  const auto high = range(100).map([](int64_t x) { return 1000 + x; }).filter(even);
  EXPECT_EQ(all(mix({2, 1}, low, high).limit(6)), (Numbers{0, 1000, 2, 4, 1002, 6}));
  EXPECT_EQ(all(mix({1, 1}, range(3).filter(even), high)), (Numbers{0, 1000, 2, 1002}));
  // When the first stream ends, the next epoch restarts it and other finite streams. Endless streams continue.
  Loader loader(mix({1, 1}, range(3).filter(even), high), as_vector, {.batch_size = 4});
  EXPECT_EQ(read(loader, 3), (Numbers{0, 1000, 2, 1002, -7, 0, 1000, 2, 1002}));
  const auto endless = range(100).repeat().map([](int64_t x) { return 1000 + x; }).filter(even);
  Loader going(mix({1, 1}, range(3).filter(even), endless), as_vector, {.batch_size = 4});
  EXPECT_EQ(read(going, 3), (Numbers{0, 1000, 2, 1002, -7, 0, 1004, 2, 1006}));
  const std::vector<Stream<int64_t>> several{low, high.shuffle(3, 1), range(7).filter(even)};
  EXPECT_EQ(all(mix({1, 1, 1}, several)).size(), 14u);  // four rounds of all three, and two records of the fifth
  EXPECT_TRUE(mix({1, 1, 1}, several).describe().starts_with("mix(1 1 1; range(100) | filter; "));
}

TEST(StreamTransforms, MapsAndPacks) {
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

TEST(StreamTransforms, ErrorsComeInTheirPlaceAndCanBeTriedAgain) {
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
  expect_error(ErrorKind::other, {"[next] the output of record 0 of epoch 0", "no space"},
               [&] { Loader(range(9).filter(even).limit(3).map(failing), as_vector, {.batch_size = 1}).next(); });
}

TEST(StreamTransforms, NameTheRecordOfTheDataset) {
  const auto evens = range(100).filter(even);
  const auto refuses_60 = [](int64_t n) {
    if (n == 60) throw std::runtime_error("no space");
    return n;
  };
  const auto read = [](const Stream<int64_t>& stream) {
    Loader loader(stream, as_vector, {.batch_size = 1});
    while (loader.next()) continue;
  };
  expect_error(ErrorKind::other, {"[next] the output of record 59 of epoch 0 and those after it", "no space"},
               [&] { read(evens.limit(40).map(refuses_60)); });
  expect_error(ErrorKind::other, {"[next] the output of record 59 of epoch 0 and those after it", "no space"},
               [&] { read(evens.shuffle(1, 1).map(refuses_60)); });
  expect_error(ErrorKind::other, {"[next] the output of the mix's turn 60 of epoch 0", "no space"}, [&] {
    read(mix({1, 1}, evens, evens).map(refuses_60));
  });
}

TEST(StreamTransforms, RefuseNumbersThatNoLoaderGives) {
  const auto evens = range(9).filter(even);
  Loader loader(mix({1, 1}, evens, evens), as_vector, {.batch_size = 2});
  const std::string begin = R"({"epoch": 0, "input": 0, "offset": 0, "since": 0})";
  expect_error(ErrorKind::invalid_argument,
               {"[restore] the state has the number 9223372036854775807, expected 0 to 2^62"}, [&] {
                 loader.restore(LoaderState::from_json(
                     R"({"global_next_index": 0, "stream": {"epoch": 0, "input": 9223372036854775807, "offset": 0, )"
                     R"("since": 0, "parts": [)" +
                     begin + ", " + begin + "]}}"));
               });
  EXPECT_TRUE(loader.next());
}

TEST(StreamTransforms, RefusesWhatMakesNoSense) {
  const auto stream = range(9).filter(even);
  expect_error(ErrorKind::invalid_argument, {"[shuffle] a window of 0"}, [&] { stream.shuffle(0, 1); });
  expect_error(ErrorKind::invalid_argument, {"[limit] 0 records"}, [&] { stream.limit(0); });
  expect_error(ErrorKind::invalid_argument, {"[mix] 1 weights for 2"}, [&] { mix({1}, stream, stream); });
  expect_error(ErrorKind::invalid_argument, {"[mix] no datasets and no streams"},
               [] { mix({}, std::vector<Stream<int64_t>>()); });
  Loader loader(mix({1, 1}, stream, stream).limit(4), as_vector, {.batch_size = 2});
  for (const StreamPosition& position : {StreamPosition{0, 1}, StreamPosition{0, 0, 0, 0, {{0, 1}}},
                                         StreamPosition{0, 0, 0, 0, {{0, 1, 0, 0, {{0, 99}, {0, 1}}}}},
                                         StreamPosition{0, -1, 0, 0, {{0, 1, 0, 0, {{}, {}}}}},
                                         StreamPosition{0, 0, 0, 0, {StreamPosition::elsewhere()}}})
    expect_error(ErrorKind::invalid_argument, {"[restore] the state "}, [&] { loader.restore({2, position}); });
  Loader shuffled(stream.shuffle(4, 1), as_vector, {.batch_size = 2});
  shuffled.restore({2, StreamPosition{0, 0, 0, 5, {StreamPosition{}}}});
  expect_error(ErrorKind::invalid_argument, {"[next] the loader's state continues at"}, [&] { shuffled.next(); });
}

// ---- any transform after any other

std::string text_of(int64_t x) { return std::to_string(x); }
std::string text_of(const PackedRow<int64_t>& row);
template <class T>
std::string text_of(const std::vector<T>& records) {
  std::string text;
  for (const T& record : records) text += text_of(record) + " ";
  return text + ";";
}
std::string text_of(const PackedRow<int64_t>& row) { return text_of(row.tokens) + text_of(row.positions); }

std::string next_text(Loader<std::string>& loader) { return loader.next().value_or("end of the epoch"); }

// At each record, a loader that is resumed from the state returns the records that follow, with any number of threads.
template <class T>
void expect_resumes(const Stream<T>& stream) {
  const auto open = [&](int prefetch) {
    return Loader(stream, [](const std::vector<T>& records) { return text_of(records); },
                  {.batch_size = 1, .prefetch = prefetch, .num_threads = 3});
  };
  auto whole = open(0);
  std::vector<std::string> states, records;
  for (int i = 0; i < 50; ++i) {
    states.push_back(whole.state().to_json());
    records.push_back(next_text(whole));
  }
  for (size_t i = 0; i < 46; ++i) {
    auto resumed = open(i % 7 ? 0 : 2);
    resumed.restore(LoaderState::from_json(states[i]));
    for (size_t k = i; k < i + 4; ++k) {
      ASSERT_EQ(resumed.state().to_json(), states[k]) << "from " << states[i];
      ASSERT_EQ(next_text(resumed), records[k]) << "from " << states[i];
    }
  }
}

Numbers document(int64_t x) { return Numbers(static_cast<size_t>(x * 7 % 11), x); }
Numbers several(int64_t x) { return Numbers(static_cast<size_t>(x % 4), x); }

// Each transform after these streams, and each pair of transforms.
template <class T, class ToNumber>
void expect_all_resume(const Stream<T>& stream, const ToNumber& to_number) {
  expect_resumes(stream);
  const auto numbers = stream.map(to_number);
  expect_resumes(numbers.filter(even));
  expect_resumes(numbers.flat_map(several).filter(even).flat_map(several));
  expect_resumes(numbers.rebatch(3).flat_map([](Numbers x) { return x; }).limit(5));
  expect_resumes(numbers.rebatch(2).map(std::identity()).rebatch(2));
  expect_resumes(numbers.map(document).pack({.length = 11, .num_packing_bins = 2}));
  expect_resumes(numbers.map(document).pack({.length = 4, .num_packing_bins = 2, .split_long = true}).shuffle(3, 1));
  expect_resumes(numbers.flat_map(several).limit(20).shuffle(7, 2).map([](int64_t x) { return x + 1; }));
  expect_resumes(mix({2, 1}, numbers.limit(12), numbers.filter(even)).flat_map(several));
}

TEST(StreamTransforms, AnyTransformFollowsAnyOther) {
  const auto identity = [](int64_t x) { return x; };
  const auto first_token = [](const PackedRow<int64_t>& row) { return row.tokens[0]; };
  for (const Dataset<int64_t>& records :
       std::vector<Dataset<int64_t>>{range(61).shuffle(3), range(61).shuffle(3).repeat()}) {
    expect_all_resume(records.filter(even), identity);
    expect_all_resume(records.flat_map(several).shuffle(4, 9), identity);
    expect_all_resume(records.filter(even).limit(23), identity);
    expect_all_resume(records.map(document).pack({.length = 12, .num_packing_bins = 2}), first_token);
    expect_all_resume(records.flat_map(several).rebatch(5), [](const Numbers& x) { return x[4]; });
    expect_all_resume(mix({1, 2}, records.filter(even), range(40).flat_map(several).shuffle(3, 1)), identity);
  }
}

TEST(StreamTransforms, TransformsAfterOthersGiveTheRecordsInOrder) {
  const auto packed = range(12).map([](int64_t x) { return Numbers(2, x); }).pack({.length = 4, .num_packing_bins = 1});
  const auto tokens = packed.flat_map([](const PackedRow<int64_t>& row) { return row.tokens; });
  EXPECT_EQ(all(tokens.filter(even)), (Numbers{0, 0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10}));
  EXPECT_EQ(all(tokens.rebatch(8).map([](const Numbers& x) { return x[7]; })), (Numbers{3, 7, 11}));
  EXPECT_EQ(tokens.filter(even).describe(), packed.describe() + " | flat_map | filter");
  EXPECT_EQ(all(range(9).filter(even).limit(3).flat_map(several)), (Numbers{2, 2}));
  const auto flags = range(9).filter(even).map([](int64_t x) { return x > 4; }).filter(std::identity());
  EXPECT_EQ(all(flags.rebatch(2).flat_map(std::identity()).map([](bool x) { return int64_t{x}; })), (Numbers{1, 1}));
}

TEST(StreamTransforms, AFilterThatKeepsNothingIsAnError) {
  const auto none = [](const auto&) { return false; };
  Loader finite(range(9).filter(even).limit(3).filter(none), as_vector, {.batch_size = 1});
  expect_error(ErrorKind::invalid_argument, {"[next]", "0 records, fewer than one batch of 1"}, [&] { finite.next(); });
  Loader forever(range(9).repeat().filter(even).rebatch(1).filter(none), as_vector, {.batch_size = 1, .prefetch = 0});
  expect_error(ErrorKind::invalid_argument, {"[next] 10000000 records of epoch 0", "gave nothing"},
               [&] { forever.next(); });
}

TEST(StreamTransforms, AStreamThatWasMovedIsAnError) {
  auto stream = range(9).filter(even);
  const auto other = std::move(stream);
  expect_error(ErrorKind::invalid_argument, {"[Stream] this stream was moved into another"},
               [&] { stream.describe(); });
}

// States saved by the first version with streams, and the batches that followed them.
TEST(StreamTransforms, StatesSavedBeforeResume) {
  const auto documents = range(60).map([](int64_t x) { return Numbers(static_cast<size_t>(x * 7 % 11), x + 1); });
  const auto packed = documents.pack({.length = 12, .num_packing_bins = 3});
  const auto filtered = range(60).shuffle(3).filter(even);
  const auto first = [](const PackedRow<int64_t>& row) { return row.tokens[0]; };
  const struct {
    Stream<int64_t> stream;
    const char* state;
    Numbers next;
  } cases[] = {
      {filtered, R"({"global_next_index": 40, "stream": {"epoch": 1, "input": 22, "offset": 0, "since": 0}})", {14, 2}},
      {range(60).flat_map(several),
       R"({"global_next_index": 16, "stream": {"epoch": 0, "input": 11, "offset": 1, "since": 0}})",
       {11, 11}},
      {packed.map(first),
       R"({"global_next_index": 16, "stream": {"epoch": 0, "input": 28, "offset": 0, "since": 1}})",
       {30, 32}},
      {documents.pack({.length = 5, .num_packing_bins = 2, .split_long = true}).map(first),
       R"({"global_next_index": 16, "stream": {"epoch": 0, "input": 14, "offset": 1, "since": 0}})",
       {15, 16}},
      {filtered.shuffle(7, 5),
       R"({"global_next_index": 16, "stream": {"epoch": 0, "input": 2, "offset": 0, "since": 2, )"
       R"("parts": [{"epoch": 0, "input": 32, "offset": 0, "since": 0}]}})",
       {30, 26}},
      {packed.shuffle(4, 1).map(first),
       R"({"global_next_index": 16, "stream": {"epoch": 0, "input": 4, "offset": 0, "since": 0, )"
       R"("parts": [{"epoch": 0, "input": 28, "offset": 0, "since": 1}]}})",
       {37, 30}},
      {filtered.limit(11),
       R"({"global_next_index": 39, "stream": {"epoch": 3, "input": 6, "offset": 0, "since": 0, )"
       R"("parts": [{"epoch": 3, "input": 13, "offset": 0, "since": 0}]}})",
       {18, 12}},
      {mix({1, 1}, filtered, range(9).repeat().filter(even)).shuffle(5, 6).limit(13),
       R"({"global_next_index": 15, "stream": {"epoch": 1, "input": 2, "offset": 0, "since": 0, )"
       R"("parts": [{"epoch": 1, "input": 0, "offset": 0, "since": 2, "parts": [{"epoch": 1, "input": 0, )"
       R"("offset": 0, "since": 0, "parts": [{"epoch": 1, "input": 0, "offset": 0, "since": 0}, {"epoch": 0, )"
       R"("input": 12, "offset": 0, "since": 0}]}]}]}})",
       {4, 10}},
  };
  for (const auto& c : cases) {
    Loader loader(c.stream, as_vector, {.batch_size = 2});
    loader.restore(LoaderState::from_json(c.state));
    EXPECT_EQ(loader.next(), c.next) << c.stream.describe();
  }
}

// ---- divided streams ------------------------------------------------------------------------------------------------

Numbers longer_document(int64_t x) { return Numbers(static_cast<size_t>(x * 7 % 11 + 1), x); }

auto divided_rows(int64_t parts, std::shared_ptr<std::atomic<int64_t>> made = nullptr) {
  return divided(parts, range(101).shuffle(3).repeat(), [made](const auto& part) {
    return part
        .map([made](int64_t x) {
          if (made) ++*made;
          return longer_document(x);
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

// After each batch the states of all processes are joined, and any number of processes continues from the result.
TEST(DividedStream, ContinuesAnywhereWithAnyNumberOfProcesses) {
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
    for (const StreamPosition& part : joined.stream->parts) EXPECT_FALSE(part.is_elsewhere());
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
  expect_error(ErrorKind::invalid_argument, {"[Loader] 3 shards of a stream in 4 parts"}, [&] {
    Loader(stream, as_vector, {.batch_size = 12, .shard = {0, 3}});
  });
  Loader loader(stream, as_vector, {.batch_size = 4});
  expect_error(ErrorKind::invalid_argument, {"[restore] 3 records of a stream in 4 parts"},
               [&] { loader.restore({3}); });
  expect_error(ErrorKind::invalid_argument, {"[restore] the state has the places of 2 streams, but this pipeline has 4"}, [&] {
    loader.restore({4, StreamPosition{0, 1, 0, 0, {{}, {}}}});
  });
  loader.next();
  const LoaderState state = loader.state();
  loader.next();
  expect_error(ErrorKind::invalid_argument, {"[joined_state] states of different positions"}, [&] {
    joined_state({state, loader.state()});
  });
  expect_error(ErrorKind::invalid_argument, {"[joined_state] no states"}, [] { joined_state({}); });
}

}  // namespace
}  // namespace tessera::data::stream_transforms_test
