// The loader's guarantees: one order for all depths and threads, exact resumption, global batches, clean shutdown.
#include "data/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "sharding/events/observer.h"
#include "tests/data/expect_error.h"

namespace tessera::data::loader_test {
namespace {

using Batch = std::vector<int64_t>;

Batch as_rows(const std::vector<int64_t>& records) { return records; }

template <class B>
std::vector<B> take(Loader<B>& loader, size_t count) {
  std::vector<B> batches;
  while (batches.size() < count) {
    if (auto batch = loader.next()) batches.push_back(std::move(*batch));
  }
  return batches;
}

std::vector<Batch> first_batches(const Dataset<int64_t>& dataset, const LoaderOptions& options, size_t count) {
  Loader loader(dataset, as_rows, options);
  return take(loader, count);
}

Dataset<int64_t> uneven_pace(int64_t size) {
  return range(size).map([](int64_t x) {
    std::this_thread::sleep_for(std::chrono::microseconds(x * 37 % 200));
    return x;
  });
}

TEST(Loader, EveryRecordExactlyOncePerEpoch) {
  Loader loader(range(96).shuffle(1), as_rows, {.batch_size = 8});
  EXPECT_EQ(loader.batches_per_epoch(), 12);
  std::vector<Batch> epochs;
  for (int epoch = 0; epoch < 3; ++epoch) {
    EXPECT_EQ(loader.epoch(), epoch);
    Batch seen;
    for (const Batch& batch : loader) seen.insert(seen.end(), batch.begin(), batch.end());
    EXPECT_EQ(seen.size(), 96u);
    EXPECT_EQ(std::set<int64_t>(seen.begin(), seen.end()).size(), 96u);
    epochs.push_back(seen);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
}

TEST(Loader, RepeatedEpochsShareTheBatchAtTheirBorder) {
  Loader loader(range(10).shuffle(1).repeat(), as_rows, {.batch_size = 4});
  EXPECT_EQ(loader.batches_per_epoch(), endless);
  Batch seen;
  for (const Batch& batch : take(loader, 5)) seen.insert(seen.end(), batch.begin(), batch.end());
  EXPECT_EQ(std::set<int64_t>(seen.begin(), seen.begin() + 10).size(), 10u);
  EXPECT_EQ(std::set<int64_t>(seen.begin() + 10, seen.end()).size(), 10u);
}

TEST(Loader, TheOrderDoesNotDependOnDepthOrThreads) {
  for (const auto& dataset :
       std::vector<Dataset<int64_t>>{uneven_pace(43).shuffle(2), uneven_pace(43).shuffle(2).repeat()}) {
    const auto expected = first_batches(dataset, {.batch_size = 4, .prefetch = 0}, 25);
    for (const int prefetch : {1, 2, 4, 16}) {
      for (const int threads : {1, 2, 4, 7}) {
        EXPECT_EQ(first_batches(dataset, {.batch_size = 4, .prefetch = prefetch, .num_threads = threads}, 25),
                  expected);
      }
    }
  }
}

TEST(Loader, TheStateCountsWhatWasHandedOutNotWhatWasMadeAhead) {
  Loader loader(range(100), as_rows, {.batch_size = 10, .prefetch = 4});
  int64_t handed_out = 0;
  for (const Batch& batch : loader) {
    EXPECT_EQ(batch.front(), handed_out);
    handed_out += 10;
    EXPECT_EQ(loader.state().global_next_index, handed_out);
    if (handed_out == 50) break;
  }
  for (const Batch& batch : loader) {
    EXPECT_EQ(batch.front(), 50) << "a second loop goes on where the first stopped";
    break;
  }
}

TEST(Loader, ARemainderIsPassedOverUnderAnotherBatchSizeToo) {
  Loader loader(range(10), as_rows, {.batch_size = 4});
  take(loader, 2);
  EXPECT_EQ(loader.state().global_next_index, 10);
  EXPECT_FALSE(loader.next().has_value());
  EXPECT_EQ(loader.next()->front(), 0);
  loader.restore({7});  // three records of epoch 0 are left, too few for a batch
  EXPECT_EQ(loader.state().global_next_index, 10);
  EXPECT_EQ(loader.epoch(), 1);
  loader.restore({26});
  EXPECT_EQ(*loader.next(), (Batch{6, 7, 8, 9}));
  EXPECT_EQ(loader.epoch(), 3);
}

TEST(Loader, AThrowingRecordReachesTheConsumerAtItsPlaceAndCanBePassedOver) {
  const auto dataset = range(100).map([](int64_t x) {
    if (x == 57) throw std::runtime_error("torn page");
    return x;
  });
  for (const int prefetch : {0, 1, 4}) {
    Loader loader(dataset, as_rows, {.batch_size = 10, .prefetch = prefetch, .num_threads = 3});
    EXPECT_EQ(take(loader, 5).back().front(), 40);
    for (int again = 0; again < 2; ++again) {
      expect_error(ErrorKind::other, {"[next]", "record 57 of epoch 0", "torn page"}, [&] { loader.next(); });
      EXPECT_EQ(loader.state().global_next_index, 50);
    }
    loader.restore({60});
    EXPECT_EQ(loader.next()->front(), 60);
  }
}

TEST(Loader, KindsOfErrorsAreKeptAndCollateIsNamed) {
  const auto throwing = range(8).map([](int64_t x) -> int64_t {
    if (x == 1) throw Error(ErrorKind::invalid_file, "[read] book.txt: cut short");
    if (x == 5) throw 5;
    return x;
  });
  Loader loader(throwing, as_rows, {.batch_size = 4});
  expect_error(ErrorKind::invalid_file, {"record 1 of epoch 0", "book.txt: cut short"}, [&] { loader.next(); });
  loader.restore({4});
  expect_error(ErrorKind::other, {"record 5", "not a std::exception"}, [&] { loader.next(); });
  const auto refuse = [](const Batch&) -> Batch { throw std::invalid_argument("ragged"); };
  Loader refusing(range(8), refuse, {.batch_size = 4});
  expect_error(ErrorKind::other, {"batch of records 0 to 3", "ragged"}, [&] { refusing.next(); });
}

TEST(Loader, ATransientFailureIsTriedAgain) {
  std::atomic<int> calls = 0;
  const auto flaky = range(4).map([&](int64_t x) {
    if (calls++ == 0) throw std::runtime_error("busy");
    return x;
  });
  Loader loader(flaky, as_rows, {.batch_size = 4});
  expect_error(ErrorKind::other, {"busy"}, [&] { loader.next(); });
  EXPECT_EQ(*loader.next(), (Batch{0, 1, 2, 3}));
}

TEST(Loader, ReportsThatTheProgramWaitsForInput) {
  struct Recorder : tessera::detail::Observer {
    Recorder() : Observer(tessera::detail::Events::activities) {}
    std::vector<std::chrono::nanoseconds> waited_for;
    void spent(tessera::detail::Activity activity, const CallerLine&, tessera::detail::Clock::time_point began,
               tessera::detail::Clock::time_point ended) override {
      EXPECT_EQ(activity, tessera::detail::Activity::input);
      waited_for.push_back(ended - began);
    }
  };
  constexpr std::chrono::milliseconds pause{5};
  const auto slow = range(8).map([=](int64_t x) { return std::this_thread::sleep_for(pause), x; });
  for (const int prefetch : {0, 1}) {
    Loader loader(slow, as_rows, {.batch_size = 2, .prefetch = prefetch});
    const Recorder recorder;
    take(loader, 2);
    ASSERT_EQ(recorder.waited_for.size(), 2u);
    EXPECT_GE(recorder.waited_for[0], pause);
  }
}

TEST(Loader, EarlyDestructionIsClean) {
  for (int round = 0; round < 50; ++round) {
    Loader loader(uneven_pace(1000).repeat(), as_rows, {.batch_size = 2, .prefetch = 8, .num_threads = 4});
    take(loader, static_cast<size_t>(round % 3));
  }
  Loader moved(range(10), as_rows, {.batch_size = 5});
  take(moved, 1);
  Loader target(range(99), as_rows, {.batch_size = 3});
  take(target, 1);
  target = std::move(moved);
  EXPECT_EQ(target.next()->front(), 5);
}

TEST(Loader, BatchesAreMadeAheadButNotTooFar) {
  std::atomic<int64_t> made = 0;
  Loader loader(range(1000).map([&](int64_t x) { return ++made, x; }), as_rows, {.batch_size = 1, .prefetch = 3});
  loader.next();
  for (int wait = 0; wait < 60'000 && made < 4; ++wait) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(made, 4);
}

TEST(Loader, ABatchIsAnyStruct) {
  struct Sums {
    int64_t total = 0;
    std::string note;
  };
  Loader loader(range(6), [](const Batch& rows) { return Sums{rows[0] + rows[1], "two"}; }, {.batch_size = 2});
  int64_t total = 0;
  for (const Sums& batch : loader) total += batch.total;
  EXPECT_EQ(total, 15);
}

TEST(Loader, MistakesAreErrors) {
  constexpr auto bad = ErrorKind::invalid_argument;
  const auto make = [](LoaderOptions options) { return [=] { Loader(range(10), as_rows, options); }; };
  expect_error(bad, {"10 records for batches of 32"}, make({.batch_size = 32}));
  expect_error(bad, {"batches of 0"}, make({.batch_size = 0}));
  expect_error(bad, {"batch_size 4", "3 shards"}, make({.batch_size = 4, .shard = {0, 3}}));
  expect_error(bad, {"shard 2 of 2"}, make({.batch_size = 4, .shard = {2, 2}}));
  expect_error(bad, {"prefetch -1"}, make({.batch_size = 4, .prefetch = -1}));
  expect_error(bad, {"num_threads 0"}, make({.batch_size = 4, .num_threads = 0}));
  expect_error(bad, {"shard 0 of 0"}, make({.batch_size = 4, .shard = {0, 0}}));
  expect_error(bad, {"shard -1 of 2"}, make({.batch_size = 4, .shard = {-1, 2}}));
  Loader loader(range(10), as_rows, {.batch_size = 4});
  expect_error(bad, {"[restore]", "-3"}, [&] { loader.restore({-3}); });
  expect_error(bad, {"[restore]", "2^62"}, [&] { loader.restore({endless}); });
  expect_error(bad, {"[restore]", "the state of a Stream"}, [&] { loader.restore({4, StreamPosition{0, 4, 0, 0}}); });
  EXPECT_EQ(loader.state().global_next_index, 0);
  auto numbers = Dataset<int>::from_vector({1, 2});
  const auto heir = std::move(numbers);
  expect_error(bad, {"[from_vector] this dataset was moved into another"}, [&] { numbers.size(); });
  Dataset<int64_t> any = range(3);
  const auto any_heir = std::move(any);
  expect_error(bad, {"[Dataset] this dataset was moved into another"}, [&] { any[0]; });
  const Loader other = std::move(loader);
  expect_error(bad, {"[Loader] this loader was moved into another"}, [&] { loader.next(); });
}

TEST(Loader, TheLastPlaceOfAllIsOne) {
  constexpr int64_t last = int64_t{1} << 62;
  for (const auto& dataset : std::vector<Dataset<int64_t>>{range(12).repeat(), range(12)}) {
    Loader loader(dataset, as_rows, {.batch_size = 4, .prefetch = 3, .num_threads = 2});
    loader.restore({last});
    EXPECT_EQ(loader.next()->front(), last % 12);
    EXPECT_GT(loader.state().global_next_index, last);
  }
}

TEST(Loader, RecordsThatCannotBeCopied) {
  const auto boxes = range(9).map([](int64_t x) { return std::make_unique<int64_t>(x); });
  const auto sum = [](std::vector<std::unique_ptr<int64_t>> records) {
    int64_t total = 0;
    for (const auto& record : records) total += *record;
    return total;
  };
  Loader loader(boxes, sum, {.batch_size = 3});
  EXPECT_EQ(take(loader, 3), (std::vector<int64_t>{3, 12, 21}));
}

TEST(Loader, CountsRecordsAndWaits) {
  Loader slow(range(40).map([](int64_t x) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return x;
  }),
              as_rows, {.batch_size = 4, .shard = {1, 2}, .prefetch = 0});
  take(slow, 10);
  EXPECT_EQ(slow.stats().num_batches, 10);
  EXPECT_EQ(slow.stats().num_records, 20);
  EXPECT_GE(slow.stats().seconds_waited, 0.04);
  EXPECT_GT(slow.stats().wait_fraction(), 0.5);
  EXPECT_LE(slow.stats().records_per_second(), 500);
  EXPECT_EQ(slow.stats().mean_ready, 0);
  slow.reset_stats();
  EXPECT_EQ(slow.stats().num_batches, 0);

  std::atomic<int64_t> made = 0;
  Loader ahead(range(100).map([&](int64_t x) { return ++made, x; }), as_rows, {.batch_size = 4, .prefetch = 3});
  take(ahead, 1);
  for (int wait = 0; wait < 60'000 && made < 16; ++wait) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::duration<double>(0.1 + 3 * ahead.stats().seconds_waited));
  take(ahead, 1);
  EXPECT_GT(ahead.stats().mean_ready, 0) << "the second lay ready";
  EXPECT_LT(ahead.stats().wait_fraction(), 0.5);
}

TEST(Loader, ProgressCountsPassesThroughRepeat) {
  Loader loader(range(10).shuffle(1).repeat(), as_rows, {.batch_size = 4});
  take(loader, 6);
  EXPECT_EQ(loader.epoch(), 0) << "one endless epoch";
  EXPECT_EQ(loader.progress().epoch, 2);
  EXPECT_NEAR(loader.progress().fraction, 0.4, 1e-9);
  Loader finite(range(10), as_rows, {.batch_size = 5});
  take(finite, 3);
  EXPECT_EQ(finite.progress().epoch, 1);
  EXPECT_NEAR(finite.progress().fraction, 0.5, 1e-9);
  Loader stream(range(10).repeat().filter([](int64_t x) { return x % 2 == 0; }), as_rows, {.batch_size = 5});
  take(stream, 3);
  EXPECT_EQ(stream.progress().epoch, 2);
  EXPECT_NEAR(stream.progress().fraction, 0.9, 1e-9) << "record 28 was the last";
  Loader uneven(range(10).shard({0, 3, false}), as_rows, {.batch_size = 4});
  take(uneven, 3);
  EXPECT_EQ(uneven.progress().epoch, 3);
  EXPECT_EQ(uneven.progress().fraction, 0);
}

TEST(Loader, ASlowRecordIsAnErrorAfterTheTimeoutAndCanBeWaitedFor) {
  std::atomic<bool> go = false;
  const auto stuck = range(8).map([&](int64_t x) {
    while (x == 5 && !go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return x;
  });
  Loader loader(stuck, as_rows, {.batch_size = 4, .timeout = std::chrono::milliseconds(30)});
  // Repeats the call until it succeeds: on a stalled machine any batch may exceed the timeout.
  const auto next_in_the_end = [&] {
    while (true) {
      try {
        return loader.next();
      } catch (const Error&) {
      }
    }
  };
  EXPECT_EQ(next_in_the_end()->front(), 0);
  for (int again = 0; again < 2; ++again)
    expect_error(ErrorKind::other, {"[next] no batch within 30 ms", "timeout"}, [&] { loader.next(); });
  EXPECT_EQ(loader.state().global_next_index, 4);
  go = true;
  EXPECT_EQ(next_in_the_end(), (Batch{4, 5, 6, 7}));
  expect_error(ErrorKind::invalid_argument, {"timeout without prefetch"}, [&] {
    Loader(stuck, as_rows, {.batch_size = 4, .prefetch = 0, .timeout = std::chrono::milliseconds(30)});
  });
  expect_error(ErrorKind::invalid_argument, {"timeout of", "to a year"},
               [&] { Loader(stuck, as_rows, {.batch_size = 4, .timeout = std::chrono::milliseconds::max()}); });
}

TEST(Loader, BatchesAreMadeIntoOthersInItsThreads) {
  Loader sums = Loader(range(8), as_rows, {.batch_size = 4}).map([](const Batch& b) { return b[0] + b[3]; });
  EXPECT_EQ(take(sums, 2), (std::vector<int64_t>{3, 11}));
  Loader throwing = Loader(range(8), as_rows, {.batch_size = 4}).map([](const Batch& b) -> int {
    if (b[0] == 4) throw std::runtime_error("no space");
    return 1;
  });
  EXPECT_EQ(throwing.next(), 1);
  expect_error(ErrorKind::other, {"[next] the batch of records 4 to 7 of epoch 0: no space"}, [&] { throwing.next(); });
}

TEST(LoaderState, IsJson) {
  EXPECT_EQ(LoaderState{96}.to_json(), R"({"global_next_index": 96})");
  EXPECT_EQ(LoaderState::from_json("{ \"global_next_index\":7 }\n"), LoaderState{7});
  const LoaderState whole{96, StreamPosition{1, 2, 3, 4}, "2 files \"a\" | map"};
  EXPECT_EQ(LoaderState::from_json(whole.to_json()), whole);
  EXPECT_EQ(whole.to_json(),
            R"({"global_next_index": 96, "stream": {"epoch": 1, "input": 2, "offset": 3, "since": 4}, )"
            R"("dataset": "2 files \"a\" | map"})");
  for (const char* text :
       {"{}", "7", R"({"global_next_index": -1})", R"({"global_next_index": 1.5})", R"({"next": 1})",
        R"({"global_next_index": 1, "next": 1})", R"({"global_next_index": 1, "stream": {"epoch": 1}})",
        R"({"global_next_index": 9223372036854775808})", R"({"global_next_index": 1, "dataset": 1})",
        R"({"global_next_index": 1, "stream": 1})"}) {
    expect_error(ErrorKind::invalid_file, {"[from_json]", "global_next_index"}, [&] { LoaderState::from_json(text); });
  }
  expect_error(ErrorKind::invalid_file, {"\"version\" is not a field of a loader state of this version"},
               [] { LoaderState::from_json(R"({"global_next_index": 1, "version": 2})"); });
  for (const char* text : {"", "{", "\xef\xbb\xbf{}", R"({"global_next_index": 1, "global_next_index": 1})"})
    expect_error(ErrorKind::invalid_file, {"[from_json]", "line 1"}, [&] { LoaderState::from_json(text); });
}

TEST(LoaderState, OfAnotherDatasetNamesTheChange) {
  Loader was(range(100).shuffle(1).repeat(), as_rows, {.batch_size = 4});
  take(was, 2);
  Loader same(range(100).shuffle(1).repeat(), as_rows, {.batch_size = 10, .prefetch = 0});
  same.restore(was.state());
  EXPECT_EQ(same.state().global_next_index, 8);
  Loader seed(range(100).shuffle(2).repeat(), as_rows, {.batch_size = 4});
  expect_error(ErrorKind::invalid_argument,
               {"[restore]", "had \"shuffle(feistel_v1 1)\", this one has \"shuffle(feistel_v1 2)\""},
               [&] { seed.restore(was.state()); });
  Loader data(range(101).shuffle(1).repeat(), as_rows, {.batch_size = 4});
  expect_error(ErrorKind::invalid_argument, {"\"range(100)\"", "\"range(101)\""}, [&] { data.restore(was.state()); });
  Loader shorter(range(100).shuffle(1), as_rows, {.batch_size = 4});
  expect_error(ErrorKind::invalid_argument, {"\"repeat()\", this one has \"nothing more\""},
               [&] { shorter.restore(was.state()); });
  EXPECT_EQ(shorter.state().global_next_index, 0) << "an error leaves the loader where it was";
  LoaderState bare = was.state();
  bare.dataset.clear();
  seed.restore(bare);
  EXPECT_EQ(seed.state().global_next_index, 8);
}

}  // namespace
}  // namespace tessera::data::loader_test
