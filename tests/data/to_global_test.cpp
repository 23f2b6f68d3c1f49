// The rows that each process reads, and global batches built from a loader.
#include "data/batches/to_global.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "data/batches/shard_batches.h"
#include "data/batches/stack.h"
#include "data/batches/token_batch.h"
#include "data/sources/windows.h"
#include "tests/data/expect_error.h"

namespace tessera::data::to_global_test {
namespace {

std::vector<ShardOptions> shards(const Mesh& mesh, const PartitionSpec& spec, const std::vector<int>& process_of) {
  std::vector<ShardOptions> all;
  for (int process = 0; process <= *std::max_element(process_of.begin(), process_of.end()); ++process)
    all.push_back(shard_of(mesh, spec, process, process_of));
  return all;
}

TEST(ShardOf, CountsDistinctBlocks) {
  using Shards = std::vector<ShardOptions>;
  const Mesh mesh = make_mesh({{"data", 4}, {"model", 2}});
  const std::vector<int> each = {0, 1, 2, 3, 4, 5, 6, 7}, pairs = {0, 0, 1, 1, 2, 2, 3, 3},
                         halves = {0, 0, 0, 0, 1, 1, 1, 1};
  EXPECT_EQ(shards(mesh, P{"data"}, each), (Shards{{0, 4}, {0, 4}, {1, 4}, {1, 4}, {2, 4}, {2, 4}, {3, 4}, {3, 4}}))
      << "processes along the model axis read the same rows";
  EXPECT_EQ(shards(mesh, P{"data"}, pairs), (Shards{{0, 4}, {1, 4}, {2, 4}, {3, 4}}));
  EXPECT_EQ(shards(mesh, P{"data"}, halves), (Shards{{0, 2}, {1, 2}}));
  EXPECT_EQ(shards(mesh, P{"model"}, each), (Shards{{0, 2}, {1, 2}, {0, 2}, {1, 2}, {0, 2}, {1, 2}, {0, 2}, {1, 2}}));
  EXPECT_EQ(shards(mesh, P{"model"}, pairs), (Shards{{0, 1}, {0, 1}, {0, 1}, {0, 1}}));
  EXPECT_EQ(shards(mesh, (P{{"data", "model"}}), halves), (Shards{{0, 2}, {1, 2}}));
  EXPECT_EQ(shards(mesh, (P{none, "data"}), each), Shards(8, {0, 1}));
  EXPECT_EQ(shards(mesh, P{}, each), Shards(8, {0, 1}));
  EXPECT_EQ(shard_of(mesh, P{"data"}), (ShardOptions{0, 1})) << "one process has all rows";
  EXPECT_EQ(ShardByProcess(MeshRules(mesh, {{"batch", "data"}})), (ShardOptions{0, 1}));
}

TEST(ShardOf, RefusesRowsThatAreNoRun) {
  const Mesh mesh = make_mesh({{"data", 4}});
  constexpr auto bad = ErrorKind::invalid_argument;
  expect_error(bad, {"[shard_of]", "process 0", "are not contiguous"},
               [&] { shard_of(mesh, P{"data"}, 0, {0, 1, 0, 1}); });
  expect_error(bad, {"[shard_of]", "rows [0, 3) of 4"}, [&] { shard_of(mesh, P{"data"}, 0, {0, 0, 0, 1}); });
  expect_error(bad, {"process 7 has no device"}, [&] { shard_of(mesh, P{"data"}, 7, {0, 0, 1, 1}); });
  expect_error(bad, {"2 processes named for a mesh of 4"}, [&] { shard_of(mesh, P{"data"}, 0, {0, 1}); });
}

TEST(ShardBatches, BatchesComePlaced) {
  const MeshRules mesh_rules{make_mesh({{"data", 2}, {"model", 2}}), {{"batch", "data"}, {"seq", replicated}}};
  const auto tokens = windows(ByteSource::from_string("abcdefghijklmnopq"), 3).shuffle(1).repeat();
  const LoaderOptions options{.batch_size = 4, .shard = ShardByProcess(mesh_rules), .prefetch = 3, .num_threads = 2};
  Loader hosts(tokens, token_batch, options);
  Loader loader = shard_batches(Loader(tokens, token_batch, options), mesh_rules);
  for (int step = 0; step < 10; ++step) {
    const TokenBatch batch = *loader.next(), host = *hosts.next();
    EXPECT_EQ(batch.inputs.value.type_string(), "int32[4@data,2]");
    EXPECT_EQ(batch.inputs.value.to_host<int32_t>(), host.inputs.value.to_host<int32_t>());
    EXPECT_EQ(loader.state(), hosts.state());
  }
  Loader numbers =
      shard_batches(Loader(range(8), stack, {.batch_size = 4}), NamedSharding(mesh_rules.mesh(), P{"data"}));
  EXPECT_EQ(numbers.next()->type_string(), "int64[4@data]");
  Loader odd = shard_batches(Loader(tokens, token_batch, {.batch_size = 3}), mesh_rules);
  expect_error(ErrorKind::not_divisible, {"inputs", "batch"}, [&] { odd.next(); });
}

}  // namespace
}  // namespace tessera::data::to_global_test
