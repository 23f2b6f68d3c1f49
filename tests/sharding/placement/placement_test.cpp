// Placement of arrays: the same bits on every mesh, blocks of the right size, no additional memory, and all errors.
#include <fmt/format.h>

#include <cstdlib>

#include "sharding/array/array_impl.h"
#include "sharding/placement/mesh.h"
#include "sharding/redistribution/device_put.h"
#include "tests/sharding/allocations.h"
#include "tests/sharding/expect_error.h"
#include "tests/sharding/expressions.h"
#include "tests/sharding/law.h"

namespace tessera::placement_test {
namespace {

using namespace tessera::testing;

const std::vector<std::vector<MeshAxis>> meshes{
    {{"a", 1}}, {{"a", 8}}, {{"a", 4}, {"b", 2}}, {{"a", 2}, {"b", 3}}, {{"a", 2}, {"b", 2}, {"c", 2}}};

struct Draw {
  const char* name;
  std::function<Array()> make;
};

const Shape shape{24, 48};
const Draw draws[] = {
    {"normal", [] { return normal(Key(0), shape); }},
    {"scaled normal", [] { return 0.02 * normal(Key(1), shape); }},
    {"negated twice", [] { return -(-(0.5 * normal(Key(1), shape))); }},
    {"normal in float64", [] { return normal(Key(2), shape, float64); }},
    {"uniform", [] { return uniform(Key(3), shape, -0.3, 0.7); }},
    {"truncated normal", [] { return truncated_normal(Key(4), -2, 2, shape); }},
    {"bfloat16", [] { return astype(0.02 * normal(Key(5), shape), bfloat16); }},
    {"constant", [] { return full(shape, 0.1); }},
    {"integers", [] { return full(shape, 7, int32); }},
};

TEST(Placement, ALazyInitializerHasTheSameBitsOnEveryMesh) {
  int cases = 0;
  for (const Draw& draw : draws) {
    const at::Tensor expected = to_tensor(draw.make());
    for (const auto& axes : meshes)
      for (const Mesh mesh : shared_and_private(axes)) {
        for (const PartitionSpec& spec : placements(mesh, shape)) {
          const Array recipe = draw.make();
          const Array x = device_put(recipe, NamedSharding(mesh, without_sets(spec)));
          ASSERT_TRUE(at::equal(to_tensor(x), expected))
              << draw.name << " as " << x.type_string() << " on " << mesh.to_string();
          EXPECT_TRUE(recipe.is_lazy() && !x.is_lazy());
          ++cases;
        }
      }
  }
  std::cout << cases << " cases\n";
}

TEST(Placement, APartialOrReducedShardingHasTheValueOnce) {
  const at::Tensor host = random_tensor(shape, 1);
  for (const Mesh mesh : shared_and_private({{"a", 2}, {"b", 3}})) {
    for (const PartitionSpec& spec : placements(mesh, shape, true)) {
      EXPECT_TRUE(at::equal(to_tensor(placed(host, mesh, spec)), host)) << spec.to_string();
      EXPECT_TRUE(
          at::equal(to_tensor(device_put(full(shape, 0.1), NamedSharding(mesh, spec))), to_tensor(full(shape, 0.1))))
          << spec.to_string();
    }
  }
}

TEST(Placement, EveryDeviceHoldsItsBlockAndNoMore) {
  for (const auto& axes : meshes)
    for (const Mesh mesh : shared_and_private(axes)) {
      for (const PartitionSpec& spec : placements(mesh, shape)) {
        const NamedSharding sharding(mesh, without_sets(spec));
        const at::Tensor host = random_tensor(shape, 1);
        for (const Array& x :
             {placed(host, mesh, without_sets(spec)), device_put(normal(Key(0), shape, float64), sharding)}) {
          const auto& local = x.impl()->local;
          const auto replicas = sharding.replica_ids(shape);
          const size_t distinct = std::count(replicas.begin(), replicas.end(), 0);
          EXPECT_EQ(local.size(), mesh.private_replicas() ? mesh.size() : distinct) << x.type_string();
          for (const at::Tensor& t : local) {
            EXPECT_EQ(t.sizes(), at::IntArrayRef(sharding.shard_shape(shape)));
            EXPECT_EQ(static_cast<int64_t>(t.nbytes()), x.impl()->type->bytes);
            EXPECT_TRUE(t.is_contiguous());
            EXPECT_EQ(t.storage().nbytes(), t.nbytes());
          }
        }
      }
    }
}

TEST(Placement, NoAllocationIsLargerThanAShard) {
  const at::Tensor host = random_tensor(shape, 1);
  for (const Mesh mesh : shared_and_private({{"data", 8}})) {
    for (const PartitionSpec& spec : {P{"data"}, P{none, "data"}}) {
      const NamedSharding sharding(mesh, spec);
      for (const Draw& draw : draws) {
        const Allocations memory;
        const Array x = device_put(draw.make(), sharding);
        // Random numbers are drawn in float32 or wider.
        const int64_t drawn = std::max<int64_t>(item_size(x.dtype()), 4);
        EXPECT_EQ(memory.largest(), x.impl()->type->bytes / item_size(x.dtype()) * drawn) << draw.name;
      }
      const Allocations memory;
      const Array x = device_put(from_tensor(host), sharding);
      EXPECT_EQ(memory.largest(), x.impl()->type->bytes);
    }
  }
}

TEST(Placement, AnArrayMovesBetweenPlacementsAndKeepsItsSpelling) {
  const Mesh mesh = make_mesh({{"a", 2}, {"b", 1}});
  const Array x = placed(random_tensor({4, 4}, 1), mesh, P{{"a", "b"}});
  EXPECT_EQ(x.sharding().spec(), (P{{"a", "b"}}));
  EXPECT_EQ(x.type_string(), "float64[4@a,4]");
  CommLedger ledger;
  const Array y = device_put(x, NamedSharding(mesh, P{none, "a"}));
  EXPECT_EQ(ledger.count("all_to_all", "a"), 1);
  EXPECT_EQ(ledger.records()[0].operation, std::string("device_put"));
  EXPECT_TRUE(at::equal(to_tensor(y), to_tensor(x)));
}

TEST(Placement, ArraysCarryMeshRulesAndConstraintsUseThem) {
  const MeshRules mesh_rules{make_mesh({{"data", 2}, {"model", 2}}),
                             {{"batch", "data"}, {"seq", "model"}, {"embed", replicated}}};
  const Array x = device_put(from_tensor(random_tensor({4, 6, 8}, 1)), {"batch", none, "embed"}, mesh_rules);
  EXPECT_EQ(x.type_string(), "float64[4@data,6,8]");
  const Array h = tanh(x);
  EXPECT_EQ(with_sharding_constraint(h, {"batch", "seq", "embed"}).type_string(), "float64[4@data,6@model,8]");
  EXPECT_EQ(with_sharding_constraint(h, P{none, none, "model"}).type_string(), "float64[4,6,8@model]");
  EXPECT_EQ(with_sharding_constraint(h, NamedSharding(mesh_rules.mesh(), {})).type_string(), "float64[4,6,8]");
  const Array bare = from_tensor(random_tensor({4, 6, 8}, 1));
  EXPECT_TRUE(with_sharding_constraint(bare, {"batch", "seq", "embed"}).is_same(bare));
  expect_error(ErrorKind::unknown_axis, "[with_sharding_constraint] dim 2 is named \"heads\", which is in no rule.",
               CALL(with_sharding_constraint(h, {"batch", "seq", "heads"})));
}

struct Environment {
  explicit Environment(const char* value, const char* name = "TESSERA_CPU_DEVICES") : name(name) {
    setenv(name, value, 1);
  }
  ~Environment() { unsetenv(name); }
  const char* name;
};

TEST(Placement, AFlagOfTheEnvironmentIsOnOrOff) {
  for (const char* name : {"TESSERA_PRIVATE_REPLICAS", "TESSERA_CHECK"}) {
    for (const char* value : {"1", "true", "on", "yes", "", "0", "false", "off", "no", "none"}) {
      const Environment environment(value, name);
      make_mesh({{"a", 2}});
    }
    const Environment environment("2", name);
    expect_error(ErrorKind::invalid_argument, std::string("[") + name + "] \"2\" given, expected 1 (on) or 0 (off).",
                 CALL(make_mesh({{"a", 2}})));
  }
}

// Each process has adjacent devices along the last axes, as on a mesh of devices.
TEST(Placement, AnAbstractMeshMayBeOfSeveralProcesses) {
  const auto over = [](int processes, const char* axes) {
    const Mesh mesh = make_mesh({{"a", 4}, {"b", 2}}, {.abstract = true, .num_processes = processes});
    detail::AxisSet set = 0;
    for (const char* axis = axes; *axis; ++axis) set |= detail::AxisSet{1} << mesh.impl()->find({axis, 1});
    return mesh.impl()->processes_over(set);
  };
  for (const char* axes : {"", "a", "b", "ab"}) EXPECT_EQ(over(1, axes), 1);
  EXPECT_EQ(over(2, "a"), 2);
  EXPECT_EQ(over(2, "b"), 1);
  EXPECT_EQ(over(4, "ab"), 4);
  EXPECT_EQ(over(8, "b"), 2);
  EXPECT_EQ(over(0, "a"), 4) << "a process each";
  const Mesh halves = make_mesh({{"a", 4}, {"b", 2}}, {.abstract = true, .num_processes = 2});
  EXPECT_EQ(sub_mesh(halves, "b", 1).impl()->processes_over(1), 2);
  EXPECT_EQ(sub_mesh(halves, "a", 1).impl()->processes_over(2), 1);
  EXPECT_NE(halves, make_mesh({{"a", 4}, {"b", 2}}, {.abstract = true}));
  EXPECT_EQ(make_mesh({{"a", 4}, {"b", 2}}, {.abstract = true, .num_processes = 8}),
            make_mesh({{"a", 4}, {"b", 2}}, {.abstract = true}));
  for (const int processes : {-1, 3, 16})
    expect_error(
        ErrorKind::device_mismatch,
        fmt::format("[make_mesh] num_processes: {} given, expected a number that divides the 8 devices so that "
                    "each process has a block of the grid.",
                    processes),
        CALL(make_mesh({{"a", 4}, {"b", 2}}, {.abstract = true, .num_processes = processes})));
  expect_error(ErrorKind::device_mismatch,
               "num_processes: 3 given, expected a number that divides the 6 devices so that",
               CALL(make_mesh({{"a", 2}, {"b", 3}}, {.abstract = true, .num_processes = 3})));
  expect_error(ErrorKind::invalid_argument, "[make_mesh] num_processes: 2 given for a mesh of devices",
               CALL(make_mesh({{"a", 2}}, {.num_processes = 2})));
}

TEST(Placement, TheEnvironmentLimitsTheDevices) {
  const Environment four("4");
  EXPECT_EQ(make_mesh({{"a", 2}, {"b", 2}}).size(), 4);
  expect_error(
      ErrorKind::device_mismatch,
      "[make_mesh] the mesh needs 8 devices, there are 4 (TESSERA_CPU_DEVICES). Choose a smaller mesh, or raise or "
      "unset TESSERA_CPU_DEVICES.",
      CALL(make_mesh({{"a", 8}})));
  expect_error(ErrorKind::device_mismatch, "device 7", CALL(make_mesh({{"a", 2}}, {.devices = {0, 7}})));
  for (const char* wrong : {"four", "0", "-1", "4x"}) {
    const Environment environment(wrong);
    expect_error(ErrorKind::invalid_argument, "expected a number of devices from 1", CALL(make_mesh({{"a", 1}})));
  }
}

TEST(Placement, DevicesAreThoseOfTheEnvironmentOrOne) {
  EXPECT_EQ(devices(), (std::vector<int>{0}));
  const Environment four("4");
  EXPECT_EQ(device_count(), 4);
  EXPECT_EQ(devices(), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(local_devices(), devices());
  EXPECT_EQ(local_device_count(), 4);
  EXPECT_EQ(make_mesh({{"batch", device_count()}}).devices(), devices());
}

TEST(Placement, ReducePartialSumKeepsTheShardingOfEveryDim) {
  const Mesh mesh = make_mesh({{"data", 2}, {"model", 2}});
  const Array x = placed(random_tensor({4, 8}, 1), mesh, P{"data", "model"});
  const Array pending = sum(x, {1});
  ASSERT_EQ(pending.type_string(), "float64[4@data]{U:model}");
  CommLedger ledger;
  const Array finished = reduce_partial_sum(pending);
  EXPECT_EQ(finished.type_string(), "float64[4@data]");
  ASSERT_EQ(ledger.records().size(), 1u);
  EXPECT_EQ(ledger.records()[0].kind, "all_reduce");
  EXPECT_EQ(ledger.records()[0].operation, "reduce_partial_sum");
  EXPECT_TRUE(at::allclose(to_tensor(finished), to_tensor(x).sum(1)));
  EXPECT_TRUE(reduce_partial_sum(finished).is_same(finished));
  EXPECT_TRUE(reduce_partial_sum(x).is_same(x));
}

TEST(Placement, EveryErrorAdvises) {
  const Mesh mesh = make_mesh({{"data", 4}, {"model", 2}}), other = make_mesh({{"model", 2}}),
             wide = make_mesh({{"a", 16}});
  const Array x = placed(random_tensor({8, 4}, 1), mesh, P{"data"}),
              y = placed(random_tensor({8, 4}, 1), other, P{"model"});
  const Array ids = array<int32_t>({0, 1, 2}), tall = from_tensor(random_tensor({3, 4}, 1));
  const auto on = [&](const Array& a, const PartitionSpec& spec) {
    return [=] { device_put(a, NamedSharding(mesh, spec)); };
  };
  struct Case {
    ErrorKind kind;
    const char* words;
    std::function<void()> call;
  };
  const Case cases[] = {
      {ErrorKind::unknown_axis,
       "[NamedSharding] mesh axis \"pipe\" of P('pipe') is not in the mesh (data=4, model=2). Use one of its axes.",
       on(x, P{"pipe"})},
      {ErrorKind::duplicate_axis, "[NamedSharding] mesh axis \"data\" appears twice in P('data', 'data')",
       on(x, P{"data", "data"})},
      {ErrorKind::duplicate_axis, "appears twice in P('data', unreduced={'data'})",
       on(x, P{"data"}.unreduced({"data"}))},
      {ErrorKind::duplicate_axis, "[make_mesh] mesh axis \"a\" is given twice", CALL(make_mesh({{"a", 2}, {"a", 2}}))},
      {ErrorKind::invalid_argument, "[make_mesh] mesh axis \"a\" = 0, expected a size from 1",
       CALL(make_mesh({{"a", 0}}))},
      {ErrorKind::invalid_argument, "[make_mesh] a mesh axis has no name", CALL(make_mesh({{"", 2}}))},
      {ErrorKind::device_mismatch, "[make_mesh] 3 devices given for a mesh of 2",
       CALL(make_mesh({{"a", 2}}, {.devices = {0, 1, 2}}))},
      {ErrorKind::device_mismatch, "[make_mesh] a device is given twice",
       CALL(make_mesh({{"a", 2}}, {.devices = {1, 1}}))},
      {ErrorKind::not_divisible,
       "[device_put] dim 0 of (3, 4) = 3 is not divisible by mesh axis \"data\" = 4. Change the spec, the mesh or the "
       "dim.",
       on(tall, P{"data"})},
      {ErrorKind::not_divisible, "dim 1 of (8, 4) = 4 is not divisible by mesh axes \"data\" = 4 x \"model\" = 2",
       on(x, P{none, {"data", "model"}})},
      {ErrorKind::not_divisible, "[with_sharding_constraint] dim 0",
       [=] { with_sharding_constraint(tall, NamedSharding(mesh, P{"data"})); }},
      {ErrorKind::not_divisible, "[redistribute] dim 0", [=] { redistribute(tall, NamedSharding(mesh, P{"data"})); }},
      {ErrorKind::rank_mismatch,
       "[device_put] P('data', None, 'model') names 3 dims, the shape (8, 4) has 2. Use a shorter spec.",
       on(x, P{"data", none, "model"})},
      {ErrorKind::device_mismatch,
       "[add] float64[8@data,4] is on the mesh (data=4, model=2), float64[8@model,4] on (model=2). Move one to the "
       "other's mesh with device_put.",
       [=] { x + y; }},
      {ErrorKind::device_mismatch,
       "[with_sharding_constraint] float64[8@data,4] is on the mesh (data=4, model=2), the target is the mesh (a=16)",
       [=] { with_sharding_constraint(x, NamedSharding(wide, {})); }},
      {ErrorKind::device_mismatch, "[redistribute] float64[8@data,4] is on the mesh (data=4, model=2)",
       [=] { redistribute(x, NamedSharding(other, {})); }},
      {ErrorKind::device_mismatch, "is not placed on a mesh", [=] { with_sharding_constraint(tall, P{"data"}); }},
      {ErrorKind::device_mismatch, "[sharding] float64[3,4] is not placed on a mesh. Place it with device_put.",
       [=] { tall.sharding(); }},
      {ErrorKind::missing_array,
       "[add] the array is absent: it was never set, was moved away, or a filter took it out of its tree.",
       [=] { x + Array(); }},
      {ErrorKind::missing_array, "[matmul] the array is absent", [=] { matmul(Array(), x); }},
      {ErrorKind::missing_array, "[device_put] the array is absent", on(Array(), {})},
      {ErrorKind::missing_array, "the array is absent", CALL(Array().shape())},
      {ErrorKind::missing_array, "[item] the array is absent", CALL(Array().item<float>())},
      {ErrorKind::shape_mismatch,
       "[add] given float64[8@data,4] and float64[3,4]: dims of sizes 8 and 3 do not broadcast.", [=] { x + tall; }},
      {ErrorKind::shape_mismatch, "[matmul] given float64[8@data,4] and float64[3,4]: dim \"k\" is 4 here and 3 there.",
       [=] { matmul(x, tall); }},
      {ErrorKind::shape_mismatch,
       "[matmul] given float64[8@data,4] and float64[]: a scalar has no matrix product. Use *.",
       [=] { matmul(x, from_tensor(random_tensor({}, 1))); }},
      {ErrorKind::shape_mismatch, "[reshape] float64[8@data,4] has 32 elements, the shape (5, 7) has another number.",
       [=] { reshape(x, {5, 7}); }},
      {ErrorKind::shape_mismatch, "[reshape] float64[8@data,4] has 32 elements, the shape (5, -1)",
       [=] { reshape(x, {5, -1}); }},
      {ErrorKind::shape_mismatch, "[layer_norm] given",
       [=] { layer_norm(x, from_tensor(random_tensor({3}, 1)), from_tensor(random_tensor({4}, 1))); }},
      {ErrorKind::shape_mismatch, "[dot_product_attention] given", [=] { dot_product_attention(x, x, x); }},
      {ErrorKind::shape_mismatch, "[cross_entropy] given", [=] { cross_entropy(x, ids); }},
      {ErrorKind::shape_mismatch, "[array] 3 values for the shape (2, 2), expected 4.",
       CALL(array<float>(std::vector<float>{1, 2, 3}, {2, 2}))},
      {ErrorKind::shape_mismatch, "[item] float64[8@data,4] has 32 elements, expected one.", [=] { x.item<double>(); }},
      {ErrorKind::dtype_mismatch, "[to_host] float64[8@data,4] read as float32. Read it as its own type.",
       [=] { x.to_host<float>(); }},
      {ErrorKind::dtype_mismatch, "[embedding] ids are float64[3,4], expected integers.", [=] { embedding(x, tall); }},
      {ErrorKind::dtype_mismatch, "[normal] dtype int32 given, expected a floating one.",
       CALL(normal(Key(0), {2}, int32))},
      {ErrorKind::invalid_argument, "[embedding] indices from 0 to 2 given, expected 0 to 1.",
       [=] { embedding(slice_in_dim(x, 0, 2, 0), ids); }},
      {ErrorKind::invalid_argument, "[embedding] indices from 0 to 8 given, expected 0 to 7.",
       [=] { embedding(x, array<int32_t>({0, 8})); }},
      {ErrorKind::invalid_argument, "[cross_entropy] indices from -1 to 0 given, expected 0 to 3.",
       [=] { cross_entropy(slice_in_dim(x, 0, 2, 0), array<int32_t>({0, -1})); }},
      {ErrorKind::invalid_argument, "[sum] dim 2 of float64[8@data,4], expected -2 to 1.", [=] { sum(x, {2}); }},
      {ErrorKind::invalid_argument, "[sum] dim 1 of float64[8@data,4] given twice.", [=] { sum(x, {1, -1}); }},
      {ErrorKind::invalid_argument, "[transpose] order (0) for float64[8@data,4], expected every dim once.",
       [=] { transpose(x, {0}); }},
      {ErrorKind::invalid_argument,
       "[slice_in_dim] [2, 1) of dim 0 of float64[8@data,4], expected 0 <= start <= stop <= 8.",
       [=] { slice_in_dim(x, 2, 1, 0); }},
      {ErrorKind::invalid_argument,
       "[parse_mesh_axes] \"data\" in \"data,model=2\", expected name=size or name=size:across, as in "
       "data=4,model=2.",
       CALL(parse_mesh_axes("data,model=2"))},
  };
  for (const Case& c : cases) expect_error(c.kind, c.words, c.call);
}

}  // namespace
}  // namespace tessera::placement_test
