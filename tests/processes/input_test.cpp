// Several processes: each reads its rows, all get one process's global batches, and differing replicas are detected.
#include <functional>

#include "data/batches/shard_batches.h"
#include "data/batches/stack.h"
#include "data/batches/token_batch.h"
#include "data/sources/windows.h"
#include "data/streams/stream.h"
#include "tests/processes/ways.h"
#include "tests/sharding/expect_error.h"

namespace tessera::data::input_test {
namespace {

using namespace tessera::testing;

const std::string text = [] {
  std::string all;
  for (int i = 0; i < 2000; ++i) all += static_cast<char>(i * i % 251);
  return all;
}();

auto tokens(uint64_t seed = 5) { return windows(ByteSource::from_string(text), 17).shuffle(seed); }
LoaderOptions by(const ShardOptions& shard, int threads = 2) {
  return {.batch_size = 24, .shard = shard, .prefetch = 3, .num_threads = threads};
}

// Shards the batch over each axis, over both axes (if a process has adjacent rows), and over none. A remaining axis
// shards the other dimension.
std::vector<Rules> rules_of(const Mesh& mesh) {
  if (mesh.axes().size() == 1) return {{{"batch", "a"}, {"seq", replicated}}, {{"batch", replicated}, {"seq", "a"}}};
  std::vector<Rules> all{{{"batch", "a"}, {"seq", replicated}},
                         {{"batch", "b"}, {"seq", "a"}},
                         {{"batch", replicated}, {"seq", {"b", "a"}}}};
  const auto& extent = mesh.impl()->extent;
  if (extent[0] == 1 || extent[1] == mesh.axes()[1].size) all.push_back({{"batch", {"a", "b"}}, {"seq", replicated}});
  return all;
}

void on_all_mesh_rules(const std::function<void(const MeshRules&)>& test) {
  on_every_way([&](Mesh mesh, Mesh) {
    for (const Rules& rules : rules_of(mesh)) {
      const MeshRules mesh_rules(mesh, rules);
      SCOPED_TRACE(ShardByProcess(mesh_rules).count);
      test(mesh_rules);
    }
  });
}

void expect_same(const std::optional<TokenBatch>& global, const std::optional<TokenBatch>& expected) {
  ASSERT_EQ(global.has_value(), expected.has_value());
  if (!expected) return;
  EXPECT_TRUE(at::equal(whole(global->inputs), to_tensor(expected->inputs)));
  EXPECT_TRUE(at::equal(whole(global->targets), to_tensor(expected->targets)));
}

// Compares a single process that never stops with all processes. Then each side resumes from the other's state.
template <class Records>
void expect_one_process(const Records& records, const MeshRules& mesh_rules) {
  Loader alone(records, token_batch, by({}));
  Loader here = shard_batches(Loader(records, token_batch, by(ShardByProcess(mesh_rules))), mesh_rules);
  for (int step = 0; step < 7; ++step) expect_same(here.next(), alone.next());
  EXPECT_EQ(here.state(), alone.state());
  const auto state = LoaderState::from_json(here.state().to_json());
  Loader other = shard_batches(Loader(records, token_batch, by(ShardByProcess(mesh_rules), 1)), mesh_rules);
  other.restore(state);
  Loader back(records, token_batch, by({}));
  back.restore(state);
  for (int step = 0; step < 4; ++step) {
    const auto expected = alone.next();
    expect_same(other.next(), expected);
    EXPECT_TRUE(at::equal(to_tensor(back.next()->inputs), to_tensor(expected->inputs)));
  }
}

TEST(Input, GlobalBatchesAreThoseOfOneProcess) {
  on_all_mesh_rules([](const MeshRules& mesh_rules) {
    expect_one_process(tokens().repeat(), mesh_rules);
    expect_one_process(tokens().repeat().filter([](const auto& window) { return window[0] % 3 != 0; }), mesh_rules);
  });
}

// The stream's state on every process equals the state of a single process that reads all parts.
TEST(Input, ADividedStreamHasOneState) {
  const auto records = divided(8, tokens().repeat(), [](const auto& part) {
    return part.filter([](const auto& window) { return window[0] % 3 != 0; });
  });
  on_all_mesh_rules([&](const MeshRules& mesh_rules) { expect_one_process(records, mesh_rules); });
}

TEST(Input, AllMakeTheSameSteps) {
  on_all_mesh_rules([](const MeshRules& mesh_rules) {
    const auto steps = [&](auto loader) {
      std::vector<int> count;
      for (int epoch = 0; epoch < 2; ++epoch) {
        count.push_back(0);
        for ([[maybe_unused]] const auto& batch : loader) ++count.back();
      }
      return count;
    };
    const ShardByProcess shard(mesh_rules);
    const auto odd = tokens().filter([](const auto& window) { return window[0] % 2 == 1; });
    EXPECT_EQ(steps(shard_batches(Loader(tokens(), token_batch, by(shard)), mesh_rules)),
              steps(Loader(tokens(), token_batch, by({}))));
    EXPECT_EQ(steps(shard_batches(Loader(odd, token_batch, by(shard)), mesh_rules)),
              steps(Loader(odd, token_batch, by({}))));
    const auto padded =
        shard_batches(Loader(tokens(), pad_last_batch(token_batch), by(shard)), mesh_rules).batches_per_epoch();
    EXPECT_EQ(padded, (tokens().size() + 23) / 24);
  });
}

TEST(Input, OneArrayHasItsSharding) {
  const auto records = range(100).repeat().map([](int64_t x) { return std::vector<int64_t>(16, x); });
  on_all_mesh_rules([&](const MeshRules& mesh_rules) {
    const NamedSharding sharding(mesh_rules.mesh(),
                                 mesh_rules.activations().resolve({"batch", "seq"}, {24, 16}, "", "").spec);
    Loader here = shard_batches(Loader(records, stack, by(ShardByProcess(mesh_rules))), sharding);
    Loader alone(records, stack, by({}));
    for (int step = 0; step < 3; ++step) {
      const Array batch = *here.next();
      EXPECT_EQ(batch.sharding(), sharding);
      EXPECT_TRUE(at::equal(whole(batch), to_tensor(*alone.next())));
    }
  });
}

// ---- processes that read wrong data

// Two replicas: each half of the processes has all rows.
MeshRules two_replicas() {
  return {make_mesh({{"model", 2}, {"data", process_count()}}), {{"batch", "data"}, {"seq", replicated}}};
}
int last() { return process_count() - 1; }
int its_replica() { return last() - process_count() / 2; }

TEST(Input, ReplicasThatReadOtherRowsAreAnErrorOnAll) {
  const MeshRules mesh_rules = two_replicas();
  const auto loader_of = [&](uint8_t added, const ShardBatchesOptions& options = {}) {
    const auto records = tokens().map([added](std::vector<uint8_t> window) {
      window[0] += added;
      return window;
    });
    return shard_batches(Loader(records, token_batch, by(ShardByProcess(mesh_rules))), mesh_rules, options);
  };
  const uint8_t added = process_index() == last() ? 1 : 0;
  auto wrong = loader_of(added);
  const std::string words = fmt::format(
      "[next] the batch at record 0, inputs: int32[24@data,16]: processes {} and {} hold the same rows of it and have "
      "read different ones. Give them the same files, seeds and state.",
      its_replica(), last());
  for (int again = 0; again < 2; ++again) {
    expect_error(ErrorKind::inconsistent, words, [&] { wrong.next(); });
    EXPECT_EQ(wrong.state().global_next_index, 0);
  }
  EXPECT_TRUE(loader_of(added, {.check_replicas = false}).next().has_value());

  auto loader = loader_of(0);
  if (process_index() == last()) loader.restore({24});
  expect_error(ErrorKind::inconsistent,
               fmt::format("[next] process 0 has the batch at record 0, process {} has the batch at record 24. All "
                           "processes must run the same program with the same arguments.",
                           last()),
               [&] { loader.next(); });
  loader.restore({0});
  EXPECT_TRUE(loader.next().has_value()) << "nothing is lost";
}

TEST(Input, ShardsOfOtherDatasetsAreAnErrorOnAll) {
  const MeshRules mesh_rules(make_mesh({{"data", process_count()}}), {{"batch", "data"}, {"seq", replicated}});
  const std::string words = fmt::format("[shard_batches] process 0 has one of {} shards of ", process_count());
  const auto records = tokens(process_index() == last() ? 6 : 5);
  const auto first_batch = [&](const ShardBatchesOptions& options) {
    return shard_batches(Loader(records, token_batch, by(ShardByProcess(mesh_rules))), mesh_rules, options).next();
  };
  expect_error(ErrorKind::inconsistent, words, [&] { first_batch({}); });
  EXPECT_TRUE(first_batch({.check_replicas = false}).has_value());
}

TEST(Input, AnEpochThatEndsOnOneProcessIsAnErrorOnAll) {
  const MeshRules mesh_rules(make_mesh({{"model", process_count()}}), {{"batch", replicated}, {"seq", replicated}});
  const auto records = tokens().slice(0, process_index() == last() ? 48 : 72);
  auto loader = shard_batches(Loader(records, token_batch, by(ShardByProcess(mesh_rules))), mesh_rules);
  for (int step = 0; step < 2; ++step) EXPECT_TRUE(loader.next().has_value());
  expect_error(ErrorKind::inconsistent,
               fmt::format("[next] process 0 has the batch at record 48, process {} has the end of an epoch before "
                           "record 48.",
                           last()),
               [&] { loader.next(); });
}

TEST(Input, WhatIsReadByHandIsCheckedByHand) {
  const MeshRules mesh_rules = two_replicas();
  const auto check = [&](uint64_t seed) {
    const TokenBatch local = *Loader(tokens(seed), token_batch, by(ShardByProcess(mesh_rules))).next();
    check_replicas(local, from_process_local(local, mesh_rules), mesh_rules.mesh());
  };
  check(5);
  expect_error(
      ErrorKind::inconsistent,
      fmt::format("[check_replicas] the batch, inputs: int32[24@data,16]: processes {} and {} hold the same rows "
                  "of it and have read different ones. Give them the same files, seeds and state.",
                  its_replica(), last()),
      [&] { check(process_index() == last() ? 6 : 5); });
}

TEST(Input, ProcessesThatGiveOtherNumbersOfRowsAreFound) {
  const MeshRules mesh_rules = two_replicas();
  TokenBatch local = *Loader(tokens(), token_batch, by(ShardByProcess(mesh_rules))).next();
  const int64_t rows = process_index() == last() ? 8 : 12;
  local.inputs = local.inputs.value.index({tessera::range(0, rows)});
  local.targets = local.targets.value.index({tessera::range(0, rows)});
  expect_error(ErrorKind::inconsistent,
               fmt::format("[from_process_local] process 0 has the batch inputs int32[12,16], targets int32[12,16], "
                           "process {} has the batch inputs int32[8,16], targets int32[8,16].",
                           last()),
               [&] { from_process_local(local, mesh_rules); });
}

}  // namespace
}  // namespace tessera::data::input_test
