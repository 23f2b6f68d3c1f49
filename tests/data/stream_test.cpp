// Streams: filters, flat maps, rebatching and packing, one after another and through loaders.
#include "data/streams/stream.h"

#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "data/loader.h"
#include "tests/data/expect_error.h"

namespace tessera::data::stream_test {
namespace {

using Numbers = std::vector<int64_t>;
constexpr auto even = [](int64_t x) { return x % 2 == 0; };
constexpr auto none = [](int64_t) { return false; };

template <class S>
auto all(const S& stream) {
  std::vector<typename S::value_type> records;
  for (const auto& record : stream) records.push_back(record);
  return records;
}

std::vector<int32_t> document(int length, int32_t token) {
  return std::vector<int32_t>(static_cast<size_t>(length), token);
}

auto seven_documents() {
  std::vector<std::vector<int32_t>> documents;
  int32_t token = 0;
  for (const int length : {5, 3, 4, 2, 6, 1, 7}) documents.push_back(document(length, ++token));
  return Dataset<std::vector<int32_t>>::from_vector(documents);
}

TEST(Stream, FiltersMapsAndFlattens) {
  EXPECT_EQ(all(range(9).filter(even)), (Numbers{0, 2, 4, 6, 8}));
  EXPECT_EQ(all(range(9).filter(even).map([](int64_t x) { return 10 * x; }).filter([](int64_t x) { return x > 20; })),
            (Numbers{40, 60, 80}));
  const auto times = [](int64_t x) { return Numbers(static_cast<size_t>(x), x); };
  EXPECT_EQ(all(range(4).flat_map(times)), (Numbers{1, 2, 2, 3, 3, 3}));
  EXPECT_EQ(all(range(4).flat_map(times).filter(even).flat_map(times)), (Numbers{2, 2, 2, 2}));
  EXPECT_EQ(all(range(5).filter(none)), Numbers{});
}

TEST(Stream, Rebatches) {
  EXPECT_EQ(all(range(10).batch(3).rebatch(4)), (std::vector<Numbers>{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(all(range(6).filter(even).rebatch(2).map([](const Numbers& x) { return x[0] + x[1]; })), (Numbers{2}));
  for (const int64_t count : {int64_t{0}, endless})
    expect_error(ErrorKind::invalid_argument, {"[rebatch]", std::to_string(count)},
                 [&] { range(4).batch(2).rebatch(count); });
}

TEST(Pack, FirstFitIsGrains) {
  const auto rows = all(seven_documents().pack({.length = 8, .num_packing_bins = 2}));
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].tokens, (std::vector<int32_t>{1, 1, 1, 1, 1, 2, 2, 2}));
  EXPECT_EQ(rows[0].segment_ids, (std::vector<int32_t>{1, 1, 1, 1, 1, 2, 2, 2}));
  EXPECT_EQ(rows[0].positions, (std::vector<int32_t>{0, 1, 2, 3, 4, 0, 1, 2}));
  EXPECT_EQ(rows[1].tokens, (std::vector<int32_t>{3, 3, 3, 3, 4, 4, 0, 0}));
  EXPECT_EQ(rows[1].segment_ids, (std::vector<int32_t>{1, 1, 1, 1, 2, 2, 0, 0}));
  EXPECT_EQ(rows[1].positions, (std::vector<int32_t>{0, 1, 2, 3, 0, 1, 0, 0}));
  EXPECT_EQ(rows[2].tokens, (std::vector<int32_t>{5, 5, 5, 5, 5, 5, 6, 0}));
  EXPECT_EQ(rows[3].tokens, (std::vector<int32_t>{7, 7, 7, 7, 7, 7, 7, 0}));
}

TEST(Pack, EveryTokenOnceAndNoSegmentBroken) {
  for (const int64_t num_packing_bins : {1, 2, 5, 100}) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const auto documents = range(60).random_map(seed, [](int64_t x, Philox& random) {
        return document(static_cast<int>(random.integer(9)), static_cast<int32_t>(x) + 1);
      });
      std::multiset<int32_t> expected, packed;
      for (const auto& d : documents) expected.insert(d.begin(), d.end());
      for (const auto& row : documents.pack({.length = 8, .num_packing_bins = num_packing_bins})) {
        ASSERT_EQ(row.tokens.size(), 8u);
        for (size_t i = 0; i < 8; ++i) {
          if (row.segment_ids[i] == 0) {
            ASSERT_EQ(row.tokens[i], 0);
            continue;
          }
          packed.insert(row.tokens[i]);
          const bool goes_on = i > 0 && row.segment_ids[i] == row.segment_ids[i - 1];
          ASSERT_EQ(row.positions[i], goes_on ? row.positions[i - 1] + 1 : 0);
          ASSERT_TRUE(!goes_on || row.tokens[i] == row.tokens[i - 1]);
        }
      }
      ASSERT_EQ(packed, expected);
    }
  }
}

TEST(Pack, LongDocumentsAreSplitOrErrors) {
  const auto documents = Dataset<std::vector<int32_t>>::from_vector({document(2, 1), document(9, 2)});
  const auto rows = all(documents.pack({.length = 4, .num_packing_bins = 1, .split_long = true}));
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[2].tokens, (std::vector<int32_t>{2, 2, 2, 2}));
  EXPECT_EQ(rows[3].tokens, (std::vector<int32_t>{2, 0, 0, 0}));
  Loader loader(documents.pack({.length = 4}), data::as_vector, {.batch_size = 1});
  expect_error(ErrorKind::invalid_argument, {"[next] record 1 of epoch 0", "9 tokens for rows of 4", "split_long"},
               [&] { loader.next(); });
  expect_error(ErrorKind::invalid_argument, {"[pack]", "0 tokens"}, [&] { documents.pack({}); });
  expect_error(ErrorKind::invalid_argument, {"[pack]", "2^31"}, [&] { documents.pack({.length = endless}); });
  expect_error(ErrorKind::invalid_argument, {"[pack]", "0 packing bins"},
               [&] { documents.pack({.length = 4, .num_packing_bins = 0}); });
}

TEST(StreamLoader, DropsTheRemainderOfAnEpoch) {
  Loader loader(range(11).filter(even), as_vector, {.batch_size = 4});
  EXPECT_EQ(loader.batches_per_epoch(), unknown);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    EXPECT_EQ(loader.epoch(), epoch);
    EXPECT_EQ(loader.next(), (Numbers{0, 2, 4, 6}));
    EXPECT_EQ(loader.next(), std::nullopt);
    EXPECT_EQ(loader.state().global_next_index, 6 * (epoch + 1)) << "what was passed over counts";
  }
}

TEST(StreamLoader, ErrorsComeInTheirPlaceAndCanBePassedOver) {
  const auto stream = range(100)
                          .map([](int64_t x) {
                            if (x == 57) throw std::runtime_error("torn page");
                            return x;
                          })
                          .filter(even);
  for (const int threads : {0, 1, 3}) {
    Loader loader(stream, as_vector, {.batch_size = 10, .prefetch = threads, .num_threads = std::max(1, threads)});
    loader.next();
    EXPECT_EQ(loader.next()->back(), 38);
    for (int again = 0; again < 2; ++again) {
      expect_error(ErrorKind::other, {"[next]", "record 57 of epoch 0", "torn page"}, [&] { loader.next(); });
      EXPECT_EQ(loader.state().global_next_index, 20);
    }
    loader.restore({25, StreamPosition{0, 58, 0, 0}});
    EXPECT_EQ(loader.next()->front(), 58);
  }
}

TEST(StreamLoader, AStreamThatGivesNothingIsAnErrorNoHang) {
  for (const int prefetch : {0, 2}) {
    for (const int threads : {1, 3}) {
      const LoaderOptions options{.batch_size = 4, .prefetch = prefetch, .num_threads = threads};
      Loader finite(range(50).filter(none), as_vector, options);
      expect_error(ErrorKind::invalid_argument, {"[next]", "0 records, fewer than one batch of 4"},
                   [&] { finite.next(); });
      Loader few(range(5).filter(even), as_vector, options);
      expect_error(ErrorKind::invalid_argument, {"3 records, fewer than one batch of 4"}, [&] { few.next(); });
      Loader forever(range(50).repeat().filter(none), as_vector, options);
      expect_error(ErrorKind::invalid_argument, {"10000 records", "gave nothing", "filter"}, [&] { forever.next(); });
    }
  }
}

TEST(StreamLoader, ABatchOfManyPassesOverASmallDatasetIsMade) {
  Loader loader(
      range(100).batch(1).repeat().rebatch(20'000), [](const std::vector<Numbers>& all) { return all.at(0); },
      {.batch_size = 1});
  const auto batch = loader.next();
  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->size(), 20'000u);
}

TEST(StreamLoader, StatesOfOtherStreamsAreErrorsNoHang) {
  const auto thrice = range(10).flat_map([](int64_t x) { return Numbers(3, x); });
  const struct {
    StreamPosition position;
    const char* words;
  } cases[] = {{{0, 11, 0, 0}, "[restore] the state continues at item 0 of record 11 in epoch 0"},
               {{0, -1, 0, 0}, "[restore]"},
               {{-1, 0, 0, 0}, "[restore]"},
               {{0, 0, -1, 0}, "[restore]"},
               {{0, 2, 3, 0}, "[next] the loader's state continues at item 3 of the output of record 2"},
               {{0, 2, 0, 1}, "1 records on, and there is none"},
               {{0, 2, 0, endless}, "and there is none"}};
  for (const int prefetch : {0, 2}) {
    for (const int threads : {1, 3}) {
      for (const auto& c : cases) {
        Loader loader(thrice, as_vector, {.batch_size = 4, .prefetch = prefetch, .num_threads = threads});
        loader.next();
        for (int again = 0; again < 2; ++again) {
          expect_error(ErrorKind::invalid_argument, {c.words}, [&] {
            loader.restore({7, c.position});
            loader.next();
          });
        }
        loader.restore({4, StreamPosition{0, 1, 1, 0}});
        EXPECT_EQ(loader.next(), (Numbers{1, 1, 2, 2}));
      }
    }
  }
  expect_error(ErrorKind::invalid_argument, {"[restore]", "one endless epoch"}, [] {
    Loader(range(5).repeat().filter(even), as_vector, {.batch_size = 2}).restore({0, StreamPosition{1, 0, 0, 0}});
  });
}

TEST(StreamLoader, AnErrorWhileItFindsItsPlaceLeavesItWhereItWas) {
  const auto torn = range(20).map([](int64_t x) {
    if (x == 9) throw std::runtime_error("torn page");
    return x;
  });
  Loader loader(torn.filter(even), as_vector, {.batch_size = 2});
  EXPECT_EQ(loader.next(), (Numbers{0, 2}));
  const LoaderState state = loader.state();
  expect_error(ErrorKind::other, {"record 9 of epoch 0", "torn page"}, [&] { loader.restore({8}); });
  EXPECT_EQ(loader.state(), state);
  EXPECT_EQ(loader.next(), (Numbers{4, 6}));
  Loader packed(torn.map([](int64_t x) { return Numbers{x}; }).pack({.length = 2}), as_vector, {.batch_size = 1});
  packed.restore({4, StreamPosition{0, 8, 0, 1}});
  for (int again = 0; again < 2; ++again)
    expect_error(ErrorKind::other, {"record 9 of epoch 0", "torn page"}, [&] { packed.next(); });
}

TEST(StreamLoader, WhatFailsAfterPackingNamesItsPlace) {
  const auto failing = [](const auto&) -> int { throw std::runtime_error("no space"); };
  const auto ones = range(10).map([](int64_t x) { return Numbers{x}; });
  for (const int prefetch : {0, 2}) {
    const LoaderOptions options{.batch_size = 1, .prefetch = prefetch};
    Loader packed(ones.pack({.length = 2, .num_packing_bins = 1}).map(failing), as_vector, options);
    expect_error(ErrorKind::other, {"[next] the output of record 0 of epoch 0 and those after it", "no space"},
                 [&] { packed.next(); });
    Loader grouped(ones.rebatch(3).map(failing), as_vector, options);
    expect_error(ErrorKind::other, {"[next] the output of record 0 of epoch 0 and those after it", "no space"},
                 [&] { grouped.next(); });
    Loader collated(range(9).filter(even), failing, {.batch_size = 2, .prefetch = prefetch});
    expect_error(ErrorKind::other, {"[next] the batch that ends before record 3 of epoch 0", "no space"},
                 [&] { collated.next(); });
  }
}

TEST(StreamLoader, EndsWhileItsThreadsSearch) {
  for (int round = 0; round < 20; ++round) {
    Loader loader(range(100)
                      .repeat()
                      .map([](int64_t x) {
                        std::this_thread::sleep_for(std::chrono::microseconds(50));
                        return x;
                      })
                      .filter([](int64_t x) { return x == 99; }),
                  as_vector, {.batch_size = 1, .prefetch = 2, .num_threads = 3});
    if (round % 2) loader.next();
  }
}

TEST(StreamLoader, AStateWithoutAPlaceReadsFromTheBeginning) {
  Loader loader(range(20).filter(even), as_vector, {.batch_size = 3});
  loader.restore({6});
  EXPECT_EQ(loader.state().stream, (StreamPosition{0, 11, 0, 0}));
  EXPECT_EQ(loader.next(), (Numbers{12, 14, 16}));
  loader.restore({13});
  EXPECT_EQ(loader.next(), (Numbers{6, 8, 10})) << "the second epoch";
}

}  // namespace
}  // namespace tessera::data::stream_test
