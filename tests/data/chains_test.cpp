// Checks the loader on random chains: each record once per epoch, any threads, exact resumption, any processes.
//
// TESSERA_CHAINS=10 tries ten times as many chains; TESSERA_CHAINS_SEED=7 tries others.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "data/datasets/combine.h"
#include "data/loader.h"

namespace tessera::data::chains_test {
namespace {

using Numbers = std::vector<int64_t>;
using Chain = Dataset<int64_t>;

int64_t setting(const char* name, int64_t otherwise) {
  const char* given = std::getenv(name);
  return given ? std::atoll(given) : otherwise;
}

// Runs try_chain(random) for `count` random chains; it returns false for a chain that cannot be tried. Prints the
// number of chains that could be tried, and fails if they are fewer than `least` percent.
template <class F>
void for_random_chains(uint64_t law, int64_t count, int64_t least, F try_chain) {
  const auto seed = static_cast<uint64_t>(setting("TESSERA_CHAINS_SEED", 0));
  count *= setting("TESSERA_CHAINS", 1);
  int64_t tried = 0;
  for (int64_t i = 0; i < count && !::testing::Test::HasFailure(); ++i) {
    Philox random(law, seed, static_cast<uint64_t>(i));
    tried += try_chain(random, i);
  }
  std::cout << tried << " chains\n";
  EXPECT_GE(tried * 100, count * least);
}

constexpr int64_t sizes[] = {1, 2, 3, 5, 8, 17, 43, 64, 65, 100};

// Adds a random operation that keeps every record exactly once.
Chain with_order(const Chain& chain, Philox& random) {
  const auto seed = static_cast<uint64_t>(random.integer(1000));
  switch (random.integer(chain.reshuffles() ? 5 : chain.size() < 40 ? 6 : 7)) {  // grain_v1 is slow at small sizes
    case 0:
      return chain.shuffle(seed);
    case 1:
      return chain.window_shuffle(1 + random.integer(9), seed);
    case 2:
      return chain.map([](int64_t x) { return x; });
    case 3:
      return chain.map_with_index([](int64_t, int64_t x) { return x; });
    case 4:
      return chain.random_map(seed, [](int64_t x, Philox& r) { return r.chance(2) ? x : -1; });
    case 5:
      return chain.cache();
    default:
      return chain.shuffle(grain_v1{static_cast<uint32_t>(seed)});
  }
}

// Adds any other random operation.
Chain with_any(const Chain& chain, Philox& random) {
  const int64_t size = chain.size();
  switch (random.integer(7)) {
    case 0:
      return chain.repeat(1 + random.integer(3));
    case 1:
      try {
        return chain.slice(random.integer(size), size, 1 + random.integer(3));
      } catch (const Error&) {  // a shuffled chain with random_map cannot be sliced
        return chain;
      }
    case 2:
      return size > 2 ? Chain(chain.shard({random.integer(2), 2})) : chain;
    case 3:
      return concat(chain, range(1 + random.integer(20)));
    case 4:
      return mix({1.0 + static_cast<double>(random.integer(3)), 1}, chain.repeat(), range(7).repeat()).slice(0, 50);
    case 5:
      return zip(chain, chain.map([](int64_t x) { return 3 * x; })).map([](const auto& pair) {
        return std::get<0>(pair) + std::get<1>(pair);
      });
    default:
      return with_order(chain, random);
  }
}

Chain random_chain(Philox& random) {
  Chain chain = range(sizes[random.integer(std::size(sizes))]);
  for (int64_t words = random.integer(5); words > 0; --words) chain = with_any(chain, random);
  return random.chance(0.5) ? Chain(chain.repeat()) : chain;
}

// A chain as a function that opens loaders. A batch is the numbers of its rows, one row after another.
struct Pipeline {
  std::string words;
  std::function<Loader<Numbers>(const LoaderOptions&)> open;
};

template <class S>
Pipeline pipeline_of(const S& source) {
  return {source.describe(), [source](const LoaderOptions& options) {
            return Loader(
                source,
                [](const auto& records) {
                  Numbers numbers;
                  for (const auto& record : records) {
                    if constexpr (requires { record.tokens; }) {
                      numbers.insert(numbers.end(), record.tokens.begin(), record.tokens.end());
                      numbers.insert(numbers.end(), record.positions.begin(), record.positions.end());
                    } else {
                      numbers.push_back(record);
                    }
                  }
                  return numbers;
                },
                options);
          }};
}

Pipeline random_pipeline(Philox& random) {
  const Chain chain = random_chain(random);
  const int64_t modulus = 2 + random.integer(3);
  const auto keep = [modulus](int64_t x) { return x % modulus != 1; };
  const auto several = [modulus](int64_t x) { return Numbers(static_cast<size_t>(x % modulus), x); };
  const auto longer = [modulus](int64_t x) { return Numbers(static_cast<size_t>(x % (2 * modulus)), x); };
  const auto seed = static_cast<uint64_t>(random.integer(1000));
  const int64_t window = 1 + random.integer(9);
  switch (random.integer(10)) {
    case 6:
      return pipeline_of(chain.filter(keep).shuffle(window, seed));
    case 7:
      return pipeline_of(chain.map(longer).pack({.length = 8, .num_packing_bins = 2}).shuffle(window, seed));
    case 8:
      return pipeline_of(mix({2, 1}, chain.filter(keep), range(40).filter(keep).shuffle(window, seed)));
    case 9:
      return pipeline_of(mix({1, 1}, chain.flat_map(several), range(9).repeat().filter(keep))
                             .shuffle(window, seed)
                             .limit(12 + random.integer(60)));
    case 0:
      return pipeline_of(chain.filter(keep));
    case 1:
      return pipeline_of(chain.flat_map(several).filter(keep));
    case 2:
      return pipeline_of(chain.map(longer).pack({.length = 8, .num_packing_bins = 1 + random.integer(4)}));
    default:
      return pipeline_of(chain);
  }
}

// Returns the first `count` results of a loader: -7 for the end of an epoch, and -8, the last one, for an error.
std::vector<Numbers> said(Loader<Numbers>& loader, size_t count) {
  std::vector<Numbers> batches;
  try {
    while (batches.size() < count) batches.push_back(loader.next().value_or(Numbers{-7}));
  } catch (const Error&) {
    batches.push_back({-8});
  }
  return batches;
}

// Returns a batch size for which the chain has at least one batch; 0 if there is none.
int64_t batch_size_for(const Pipeline& pipeline, Philox& random) {
  for (const int64_t size : {1 + random.integer(6), int64_t{1}}) {
    try {
      auto loader = pipeline.open({.batch_size = 12 * size, .prefetch = 0});
      loader.next();
      return 12 * size;
    } catch (const Error&) {
    }
  }
  return 0;
}

bool has_every_record_once(Philox& random) {
  const int64_t size = sizes[random.integer(std::size(sizes))];
  Chain chain = range(size);
  for (int64_t words = 1 + random.integer(5); words > 0; --words) chain = with_order(chain, random);
  Numbers expected(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i) expected[static_cast<size_t>(i)] = i;
  for (const int64_t epoch : {0, 1, 1000}) {
    Numbers seen;
    for (int64_t i = 0; i < size; ++i) seen.push_back(chain.at(epoch, i));
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen, expected) << chain.describe() << " in epoch " << epoch;
  }
  return true;
}

TEST(Chains, EveryRecordExactlyOncePerEpoch) {
  for_random_chains(1, 2000, 100, [](Philox& random, int64_t) { return has_every_record_once(random); });
}

TEST(Chains, EveryRecordExactlyOnceAtOddSizes) {
  for (const int64_t size : {1, 2, 3, 257, 4097, 65537, 131073}) {
    const auto chain = range(size).shuffle(3).window_shuffle(100, 4);
    std::vector<bool> seen(static_cast<size_t>(size));
    for (int64_t i = 0; i < size; ++i) {
      const auto record = static_cast<size_t>(chain.at(5, i));
      ASSERT_FALSE(seen[record]) << size;
      seen[record] = true;
    }
  }
}

TEST(Chains, AnyNumberOfThreadsGivesTheSameBatches) {
  for_random_chains(2, 400, 62, [](Philox& random, int64_t) {
    const Pipeline pipeline = random_pipeline(random);
    const int64_t size = batch_size_for(pipeline, random);
    if (size == 0) return false;
    auto alone = pipeline.open({.batch_size = size, .prefetch = 0});
    const auto expected = said(alone, 12);
    for (const int threads : {1, 2, 7}) {
      auto loader = pipeline.open({.batch_size = size, .prefetch = threads + 1, .num_threads = threads});
      EXPECT_EQ(said(loader, 12), expected) << pipeline.words << ", " << threads << " threads";
    }
    return true;
  });
}

// Returns the first batches of a loader, each with the state before it. Returns fewer if a filter leaves less than one
// batch in an epoch.
std::vector<std::pair<std::string, Numbers>> with_states(Loader<Numbers> loader, size_t count) {
  std::vector<std::pair<std::string, Numbers>> batches;
  try {
    while (batches.size() < count) {
      const std::string state = loader.state().to_json();
      if (const std::optional<Numbers> batch = loader.next()) batches.push_back({state, *batch});
    }
  } catch (const Error&) {
  }
  return batches;
}

TEST(Chains, ResumingAnywhereEqualsNeverStopping) {
  for_random_chains(3, 1000, 60, [](Philox& random, int64_t number) {
    const Pipeline pipeline = random_pipeline(random);
    const int64_t size = batch_size_for(pipeline, random);
    if (size == 0) return false;
    const LoaderOptions options{.batch_size = size, .prefetch = number % 10 ? 0 : 2, .num_threads = 2};
    const auto batches = with_states(pipeline.open(options), 12);
    for (size_t stop = 0; stop < batches.size(); ++stop) {
      auto resumed = pipeline.open(options);
      resumed.restore(LoaderState::from_json(batches[stop].first));
      for (size_t i = stop; i < std::min(stop + 3, batches.size());) {
        const std::optional<Numbers> batch = resumed.next();
        if (!batch) continue;
        EXPECT_EQ(*batch, batches[i++].second) << pipeline.words << " at " << batches[stop].first;
      }
    }
    return true;
  });
}

Numbers next_in_any_epoch(Loader<Numbers>& loader) {
  std::optional<Numbers> batch = loader.next();
  if (!batch) batch = loader.next();
  return *batch;
}

// Returns the next three global batches from `state` on, read by `count` processes. Advances `state`.
std::vector<Numbers> global_batches(const Pipeline& pipeline, LoaderOptions options, int64_t count,
                                    LoaderState& state) {
  std::vector<Numbers> joined(3);
  LoaderState after;
  for (int64_t index = 0; index < count; ++index) {
    options.shard = {index, count};
    auto loader = pipeline.open(options);
    loader.restore(state);
    for (Numbers& batch : joined) {
      const Numbers part = next_in_any_epoch(loader);
      batch.insert(batch.end(), part.begin(), part.end());
    }
    EXPECT_TRUE(index == 0 || loader.state() == after) << "all processes are at one place";
    after = loader.state();
  }
  state = after;
  return joined;
}

TEST(Chains, AnyNumberOfProcessesMakesTheSameGlobalBatches) {
  for_random_chains(4, 1000, 60, [](Philox& random, int64_t number) {
    const Pipeline pipeline = random_pipeline(random);
    const int64_t size = batch_size_for(pipeline, random);
    if (size == 0) return false;
    auto alone = pipeline.open({.batch_size = size, .prefetch = 0});
    if (said(alone, 24).back() == Numbers{-8}) return false;
    alone.restore({});
    LoaderState state;
    const LoaderOptions options{.batch_size = size, .prefetch = number % 10 ? 0 : 1};
    for (const int64_t count : {1, 2, 4, 3})  // three steps on each number of processes
      for (const Numbers& batch : global_batches(pipeline, options, count, state))
        EXPECT_EQ(batch, next_in_any_epoch(alone)) << pipeline.words << " on " << count << " processes";
    return true;
  });
}

}  // namespace
}  // namespace tessera::data::chains_test
