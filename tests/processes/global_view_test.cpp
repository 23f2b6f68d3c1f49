// Several processes: how each one sees, reads and creates arrays on a common mesh, and what must agree.
#include <algorithm>
#include <numeric>
#include <sstream>

#include "sharding/base/environment.h"
#include "sharding/operations/shape/make_array.h"
#include "tests/processes/ways.h"
#include "tests/sharding/expect_error.h"

namespace tessera::global_view_test {
namespace {

using namespace tessera::testing;

// ---- values

TEST(ManyProcesses, TheSameSeedGivesTheSameBits) {
  const at::Tensor expected = to_tensor(normal(Key(7), {8, 16}));
  on_every_way([&](Mesh mesh, Mesh) {
    for (const PartitionSpec& spec : placements(mesh, {8, 16})) {
      if (!spec.unreduced_axes().empty()) continue;
      const Array x = device_put(normal(Key(7), {8, 16}), NamedSharding(mesh, spec));
      EXPECT_TRUE(at::equal(whole(x), expected)) << spec.to_string();
    }
  });
}

TEST(ManyProcesses, EachSeesItsDevicesAndTheNumberOfOthers) {
  on_every_way([](Mesh mesh, Mesh) {
    EXPECT_EQ(mesh.process_count(), process_count());
    EXPECT_EQ(mesh.process_index(), process_index());
    EXPECT_EQ(static_cast<int64_t>(mesh.local_devices().size()) * process_count(), mesh.size());
    const at::Tensor x = random_tensor({8, 16}, 1);
    const Array a = placed(x, mesh, P{"a"});
    EXPECT_FALSE(a.is_fully_addressable());
    std::vector<int> mine;
    for (const Shard& shard : a.addressable_shards()) {
      mine.push_back(shard.device);
      EXPECT_EQ(shard.process, process_index());
      EXPECT_TRUE(at::equal(to_tensor(shard.data), detail::cut(x, shard.index)));
    }
    EXPECT_EQ(mine, mesh.local_devices());
    EXPECT_EQ(static_cast<int64_t>(a.global_shards().size()), mesh.size());
  });
}

TEST(ManyProcesses, ReadingDoesNotCommunicate) {
  const Mesh mesh = make_mesh({{"a", process_count()}, {"b", 2}});
  const at::Tensor x = random_tensor({8, 16}, 1);
  EXPECT_TRUE(at::equal(to_tensor(placed(x, mesh, P{none, "b"})), x));
  const Array apart = placed(x, mesh, P{"a"});
  expect_error(ErrorKind::invalid_argument,
               "[to_host] float64[8@a,16] has shards on other processes, along \"a\". Reading does not communicate: "
               "gather it first, on all processes.",
               [&] { to_tensor(apart); });
  std::ostringstream text;
  text << placed(at::arange(process_count(), at::kInt), mesh, P{"a"});
  EXPECT_EQ(text.str(), fmt::format("int32[{0}@a] on process {1} of {0}\n[{1}:{2}] on device {3} [{1}]",
                                    process_count(), process_index(), process_index() + 1, 2 * process_index()));
}

TEST(ManyProcesses, ArraysAreMadeOfWhatEachProcessHas) {
  on_every_way([](Mesh mesh, Mesh) {
    const at::Tensor x = random_tensor({8, 16}, 1);
    for (const PartitionSpec& spec : placements(mesh, {8, 16})) {
      if (!spec.unreduced_axes().empty()) continue;
      SCOPED_TRACE(spec.to_string());
      const NamedSharding sharding(mesh, spec);
      const Array a = device_put(from_tensor(x), sharding);
      std::vector<Array> shards;
      for (const Shard& shard : a.addressable_shards()) shards.push_back(shard.data);
      EXPECT_TRUE(at::equal(whole(make_array_from_shards({8, 16}, sharding, shards)), x));
      int made = 0;
      const Array called = make_array_from_callback({8, 16}, sharding, [&](const IndexRanges& block) {
        ++made;
        return from_tensor(detail::cut(x, block));
      });
      EXPECT_TRUE(at::equal(whole(called), x));
      EXPECT_LE(made, static_cast<int>(mesh.local_devices().size()));
    }
  });
}

TEST(ManyProcesses, RowsOfEachProcess) {
  const int64_t p = process_count(), i = process_index();
  const Mesh mesh = make_mesh({{"a", p}, {"b", 2}});
  const at::Tensor x = random_tensor({4 * p, 6}, 1);
  const at::Tensor rows = x.narrow(0, 4 * i, 4);
  for (const PartitionSpec& spec : {P{"a"}, P{{"a", "b"}}, P{"a", "b"}}) {
    const Array made = make_array_from_process_local_data(NamedSharding(mesh, spec), from_tensor(rows));
    EXPECT_EQ(made.shape(), (Shape{4 * p, 6}));
    EXPECT_TRUE(at::equal(whole(made), x)) << spec.to_string();
  }
  const Array equal = make_array_from_process_local_data(NamedSharding(mesh, P{"b"}), from_tensor(x));
  EXPECT_EQ(equal.shape(), (Shape{4 * p, 6}));
  expect_error(ErrorKind::shape_mismatch,
               fmt::format("[make_array_from_process_local_data] float64[4,6] given for the global shape ({}, 6): this "
                           "process holds [{}:{}, 0:6] of it",
                           8 * p, 8 * i, 8 * i + 8),
               [&] {
                 make_array_from_process_local_data(NamedSharding(mesh, P{"a"}), from_tensor(rows), {8 * p, 6});
               });
}

// ---- machines; TESSERA_MACHINE simulates several

std::vector<int> machines_of_all() { return make_mesh({{"a", process_count()}}).machines(); }

TEST(ManyProcesses, ThoseOfAMachineAreAdjacent) {
  const Mesh mesh = make_mesh({{"a", process_count()}, {"b", 2}});
  const std::vector<int> machines = mesh.machines();
  EXPECT_TRUE(std::is_sorted(machines.begin(), machines.end()));
  for (int place = 0; place < mesh.size(); place += 2) EXPECT_EQ(machines[place], machines[place + 1]);
  const bool is_one = machines.back() == 0;
  EXPECT_EQ(mesh.to_string(), fmt::format("a={}{}, b=2", process_count(), is_one ? "" : " across machines"));
  if (!is_one) return;
  std::vector<int> ascending(mesh.size());
  std::iota(ascending.begin(), ascending.end(), 0);
  EXPECT_EQ(mesh.devices(), ascending);
}

TEST(ManyProcesses, AnAxisAcrossGoesRoundTheMachines) {
  const std::vector<int> machines = machines_of_all();
  const int count = machines.back() + 1, each = process_count() / count;
  const Mesh mesh = make_mesh({{"model", each}, {"data", 2 * count, across}, {"slot", 1}});
  const at::Tensor x = random_tensor({4 * each, 4 * count}, 1);
  EXPECT_TRUE(at::equal(whole(placed(x, mesh, P{"model", "data"})), x));
  EXPECT_EQ(whole(sum(placed(at::ones({4 * count}, at::kFloat), mesh, P{"data"}))).item().toDouble(), 4.0 * count);
  if (count == 1) return;
  for (int place = 0; place < mesh.size(); ++place) EXPECT_EQ(mesh.machines()[place], place % count);
  EXPECT_EQ(mesh.to_string(), fmt::format("model={}, data={} across machines, slot=1", each, 2 * count));
}

TEST(ManyProcesses, SumsOverSeveralMachinesAreTheSameBitsEverywhere) {
  const Mesh mesh = make_mesh({{"a", process_count()}, {"b", 2}});
  const at::Tensor x = random_tensor({2 * process_count(), 40000}, 1).to(at::kFloat);
  const detail::CheckScope checked;  // compares replicas
  const Array sums = sum(placed(x, mesh, P{{"a", "b"}}), {0});
  EXPECT_LE(difference(whole(reshard(sums, P{})), x.to(at::kDouble).sum(0)), 1e-5);
  EXPECT_LE(difference(whole(reshard(sums, P{"a"})), x.to(at::kDouble).sum(0)), 1e-5);
}

// ---- errors

TEST(ManyProcesses, EveryProcessHasABlockOfTheGrid) {
  const int p = process_count();
  expect_error(ErrorKind::device_mismatch,
               fmt::format("[make_mesh] {} devices cannot be divided equally among {} processes. Choose a mesh of a "
                           "multiple of them: each process has as many of its devices.",
                           p + 1, p),
               [&] { make_mesh({{"a", p + 1}}); });
  std::vector<int> dealt;
  for (int i = 0; i < 2; ++i)
    for (int q = 0; q < p; ++q) dealt.push_back(2 * q + i);
  expect_error(
      ErrorKind::device_mismatch,
      "[make_mesh] the devices of process 0 are not a block of the grid, the same range along each axis for every "
      "process. Order the devices so that adjacent devices belong to one process.",
      [&] { make_mesh({{"a", 2 * p}}, {.devices = dealt}); });
}

TEST(ManyProcesses, UnderCheckAllMoveTheSame) {
  const Mesh mesh = make_mesh({{"a", process_count()}});
  const at::Tensor values = random_tensor({8, 16}, 1);
  const Array x = placed(values, mesh, P{"a"});
  const detail::CheckScope checked;
  EXPECT_LE(difference(whole(placed(values, mesh, P{"a"})), values), 0);
  expect_error(ErrorKind::inconsistent, "[TESSERA_CHECK] process 0 has all_gather over a of float64 (", [&] {
    process_index() == 0 ? reshard(x, P{}) : reshard(x, P{none, "a"});
  });
}

}  // namespace
}  // namespace tessera::global_view_test
