// Arrays from each device's data (callbacks, rows of a process, shards), moves between devices, and constraints.
#include "sharding/operations/shape/make_array.h"

#include "sharding/accounting/ledger.h"
#include "sharding/array/array_impl.h"
#include "sharding/redistribution/device_put.h"
#include "tests/sharding/expect_error.h"
#include "tests/sharding/law.h"

namespace tessera::make_array_test {
namespace {

using namespace tessera::testing;

const Shape shape{8, 24};
constexpr DType dtypes[] = {float16, bfloat16, float32, float64, uint8, int8, int16, int32, int64, boolean};
const std::vector<std::vector<MeshAxis>> meshes{
    {{"a", 1}}, {{"a", 4}}, {{"a", 4}, {"b", 2}}, {{"a", 2}, {"b", 2}, {"c", 2}}};

at::Tensor numbers(const Shape& shape, DType dtype) {
  int64_t n = 1;
  for (int64_t size : shape) n *= size;
  return at::arange(n).remainder(97).reshape(shape).to(static_cast<at::ScalarType>(dtype));
}

// f(sharding) for every sharding of `shape` on every mesh, with shared and with private replicas.
template <class F>
void on_every_placement(F f) {
  for (const auto& axes : meshes)
    for (const Mesh mesh : shared_and_private(axes)) {
      for (const PartitionSpec& spec : placements(mesh, shape)) {
        SCOPED_TRACE(mesh.to_string() + " " + spec.to_string());
        f(NamedSharding(mesh, without_sets(spec)));
      }
    }
}

TEST(MakeArray, ACallbackIsCalledOnceForEachBlock) {
  for (const DType dtype : dtypes) {
    const at::Tensor whole = numbers(shape, dtype);
    on_every_placement([&](const NamedSharding& sharding) {
      std::set<IndexRanges> seen;
      const Array x = make_array_from_callback(shape, sharding, [&](const IndexRanges& block) {
        EXPECT_TRUE(seen.insert(block).second);
        return from_tensor(detail::cut(whole, block));
      });
      EXPECT_EQ(static_cast<int>(seen.size()), sharding.distinct_shard_count(shape));
      EXPECT_TRUE(x.sharding() == sharding);
      EXPECT_TRUE(at::equal(to_tensor(x), whole));
    });
  }
}

TEST(MakeArray, ShardsAreTheInverseOfAddressableShards) {
  for (const DType dtype : dtypes) {
    const at::Tensor whole = numbers(shape, dtype);
    on_every_placement([&](const NamedSharding& sharding) {
      const Array x = device_put(from_tensor(whole), sharding);
      std::vector<Array> unplaced, placed;
      for (const Shard& shard : x.addressable_shards()) {
        EXPECT_TRUE(at::equal(to_tensor(shard.data), detail::cut(whole, shard.index)));
        EXPECT_EQ(shard.data.nbytes(), x.shard_bytes());
        EXPECT_EQ(shard.data.nbytes(), sharding.shard_bytes(shape, dtype));
        unplaced.push_back(shard.data);
        placed.push_back(device_put(shard.data, shard.device));
      }
      for (const auto& shards : {unplaced, placed}) {
        const Array again = make_array_from_shards(shape, sharding, shards);
        EXPECT_EQ(again.type_string(), x.type_string());
        EXPECT_TRUE(at::equal(to_tensor(again), whole));
      }
    });
  }
}

TEST(MakeArray, ShardsOfAPartialSumAreItsTerms) {
  const NamedSharding sharding(make_mesh({{"a", 2}, {"b", 2}}), P{"a"}.unreduced({"b"}));
  const auto part = [](float v) { return array<float>({v}); };
  const Array x = make_array_from_shards({2}, sharding, {part(1), part(2), part(3), part(4)});
  EXPECT_EQ(x.type_string(), "float32[2@a]{U:b}");
  EXPECT_EQ(x.to_host<float>(), (std::vector<float>{3, 7}));
  EXPECT_EQ(x.addressable_shards()[2].data.item<float>(), 3);
  expect_error(ErrorKind::invalid_argument, "is a partial sum",
               [&] { make_array_from_callback({2}, sharding, [&](const IndexRanges&) { return part(1); }); });
}

TEST(MakeArray, ScalarsAndEmptyArrays) {
  const Mesh mesh = make_mesh({{"a", 2}});
  const Array scalar = make_array_from_callback({}, NamedSharding(mesh, {}), [](const IndexRanges& block) {
    EXPECT_TRUE(block.empty());
    return from_tensor(at::scalar_tensor(7));
  });
  EXPECT_EQ(scalar.item<float>(), 7);
  const Array empty = make_array_from_callback({0, 3}, NamedSharding(mesh, P{"a"}), [](const IndexRanges&) {
    return zeros({0, 3}, int32);
  });
  EXPECT_EQ(empty.size(), 0);
  EXPECT_EQ(empty.type_string(), "int32[0@a,3]");
  EXPECT_EQ(make_array_from_shards({0, 3}, NamedSharding(mesh, P{"a"}), {zeros({0, 3}), zeros({0, 3})}).nbytes(), 0);
}

TEST(MakeArray, TheDataOfAProcessIsTheWholeWhereOneOwnsTheMesh) {
  const NamedSharding sharding(make_mesh({{"a", 4}}), P{"a"});
  const Array local = from_tensor(random_tensor({8, 2}, 1));
  EXPECT_EQ(make_array_from_process_local_data(sharding, local).to_host<double>(), local.to_host<double>());
  EXPECT_EQ(make_array_from_process_local_data(sharding, local, {8, 2}).type_string(), "float64[8@a,2]");
  expect_error(ErrorKind::shape_mismatch,
               "[make_array_from_process_local_data] float64[8,2] given for the global shape (16, 2)", [&] {
                 make_array_from_process_local_data(sharding, local, {16, 2});
               });
}

TEST(MakeArray, EveryRefusalNamesTheBlock) {
  const Mesh mesh = make_mesh({{"a", 2}, {"b", 2}}, {.devices = {3, 1, 0, 2}});
  const NamedSharding sharding(mesh, P{"a"});
  const Array row = array<float>({1}), other = array<float>({2}), two = array<float>({1, 2});
  const auto of_shards = [=](std::vector<Array> shards) {
    return [=] { make_array_from_shards({2}, sharding, shards); };
  };
  const auto of_block = [=](const Array& block) {
    return [=] { make_array_from_callback({2}, sharding, [&](const IndexRanges&) { return block; }); };
  };
  struct Case {
    ErrorKind kind;
    const char* words;
    std::function<void()> call;
  };
  const Case cases[] = {
      {ErrorKind::shape_mismatch, "[make_array_from_shards] 3 shards given for the mesh (a=2, b=2), expected 4",
       of_shards({row, row, row})},
      {ErrorKind::shape_mismatch, "float32[2] given for the block [0:1] of device 1, expected the shape (1)",
       of_shards({row, two, row, row})},
      {ErrorKind::invalid_argument, "devices 3 and 1 hold the same block [0:1] of float32[2@a] with different values",
       of_shards({row, other, row, row})},
      {ErrorKind::dtype_mismatch, "int32[1] given for the block [1:2] of device 0, the blocks before it are float32",
       of_shards({row, row, array<int32_t>({1}), row})},
      {ErrorKind::device_mismatch, "for the block [1:2] of device 0 is on the mesh () of device 2",
       of_shards({row, row, device_put(row, 2), row})},
      {ErrorKind::missing_array, "[make_array_from_shards] the array is absent", of_shards({row, Array(), row, row})},
      {ErrorKind::shape_mismatch, "[make_array_from_callback] float32[2] given for the block [0:1] of device 3",
       of_block(two)},
      {ErrorKind::device_mismatch, "is on the mesh (a=2, b=2)", of_block(device_put(row, NamedSharding(mesh, {})))},
      {ErrorKind::not_divisible, "[make_array_from_callback] dim 0 of (3)",
       [=] { make_array_from_callback({3}, sharding, [&](const IndexRanges&) { return row; }); }},
      {ErrorKind::rank_mismatch, "P('a') names 1 dims, the shape () has 0",
       [=] { make_array_from_callback({}, sharding, [&](const IndexRanges&) { return row; }); }},
  };
  for (const Case& c : cases) expect_error(c.kind, c.words, c.call);
}

TEST(DevicePut, OneDeviceHoldsItAll) {
  const Array x = device_put(from_tensor(random_tensor({4, 2}, 1)), 3);
  EXPECT_EQ(x.sharding().to_string(), "SingleDeviceSharding(device=3)");
  EXPECT_TRUE(x.sharding() == NamedSharding(SingleDeviceSharding{3}));
  EXPECT_FALSE(x.sharding() == NamedSharding(SingleDeviceSharding{0}));
  EXPECT_TRUE(x.is_fully_replicated());
  ASSERT_EQ(x.addressable_shards().size(), 1u);
  EXPECT_EQ(x.addressable_shards()[0].device, 3);
  const Array y = x + x;
  EXPECT_EQ(y.sharding().to_string(), "SingleDeviceSharding(device=3)");
  expect_error(ErrorKind::device_mismatch, "Move one to the other's", [&] { x + device_put(x, 2); });
}

TEST(DevicePut, MovesToOtherDevicesAndCountsWhatTheyLack) {
  const at::Tensor host = random_tensor({8, 4}, 1);
  const auto moved = [&](const NamedSharding& from, const NamedSharding& to) {
    const Array x = device_put(from_tensor(host), from);
    CommLedger ledger;
    const Array y = device_put(x, to);
    EXPECT_TRUE(at::equal(to_tensor(y), host));
    EXPECT_TRUE(y.sharding() == to);
    EXPECT_EQ(ledger.count("block_exchange"), ledger.count());
    return ledger.bytes();
  };
  const Mesh two = make_mesh({{"x", 2}}), swapped = make_mesh({{"x", 2}}, {.devices = {1, 0}}),
             four = make_mesh({{"a", 2}, {"b", 2}});
  const int64_t all = 8 * 4 * 8;
  EXPECT_EQ(moved(SingleDeviceSharding{0}, NamedSharding(two, P{})), all);
  EXPECT_EQ(moved(SingleDeviceSharding{0}, SingleDeviceSharding{1}), all);
  EXPECT_EQ(moved(NamedSharding(two, P{}), SingleDeviceSharding{1}), 0);
  EXPECT_EQ(moved(NamedSharding(two, P{"x"}), NamedSharding(swapped, P{"x"})), all / 2);
  EXPECT_EQ(moved(NamedSharding(two, P{"x"}), NamedSharding(two, P{"x"})), 0);
  EXPECT_EQ(moved(NamedSharding(four, P{{"a", "b"}}), NamedSharding(make_mesh({{"x", 4}}), P{"x"})), 0);
  EXPECT_EQ(moved(NamedSharding(two, P{"x"}), NamedSharding(four, P{"a", "b"})), all / 4);
}

// The gradient of sum(place(x^2)^2) is 4 x^3, for any placement.
TEST(DevicePut, IsDifferentiableInTheMiddleOfAComputation) {
  const at::Tensor host = random_tensor({8, 4}, 1);
  for (const bool private_replicas : {false, true}) {
    const Mesh two = make_mesh({{"x", 2}}, {.private_replicas = private_replicas}),
               four = make_mesh({{"a", 2}, {"b", 2}}, {.private_replicas = private_replicas}),
               back = make_mesh({{"z", 4}}, {.devices = {3, 2, 1, 0}, .private_replicas = private_replicas});
    const std::function<Array(const Array&)> places[] = {
        [&](const Array& x) {
          return device_put(x, NamedSharding(two, P{none, "x"}));
        },
        [&](const Array& x) { return with_sharding_constraint(x, NamedSharding(back, P{"z"})); },
        [&](const Array& x) {
          return with_sharding_constraint(x, P{unconstrained, "b"});
        },
        [&](const Array& x) {
          return reshard(x, P{{"b", "a"}});
        },
        [&](const Array& x) { return device_put(x, 2); }};
    for (const auto& place : places) {
      Tape tape({device_put(from_tensor(host), NamedSharding(four, P{"a"}))});
      const Array loss = sum(square(place(square(tape.shadows()[0]))));
      EXPECT_LT(difference(to_tensor(tape.gradients(loss)[0]), 4 * host.pow(3)), 1e-12);
    }
  }
}

TEST(Constraint, AnUnconstrainedDimKeepsItsSharding) {
  const Mesh mesh = make_mesh({{"a", 2}, {"b", 2}, {"c", 2}}), other = make_mesh({{"a", 2}, {"z", 4}});
  const Array host = from_tensor(random_tensor({8, 8}, 1));
  const Array x = device_put(host, NamedSharding(mesh, P{{"a", "b"}}));
  const auto spec_after = [&](const Array& y) { return y.sharding().spec().to_string(); };
  EXPECT_EQ(spec_after(with_sharding_constraint(x, P{unconstrained, "c"})), "P(('a', 'b'), 'c')");
  EXPECT_EQ(spec_after(with_sharding_constraint(x, P{unconstrained, "b"})), "P('a', 'b')");
  EXPECT_EQ(spec_after(with_sharding_constraint(x, P{"c", unconstrained})), "P('c')");
  EXPECT_EQ(spec_after(with_sharding_constraint(x, NamedSharding(other, P{unconstrained, "z"}))), "P(None, 'z')");
  EXPECT_EQ(spec_after(with_sharding_constraint(host, NamedSharding(mesh, P{unconstrained, "a"}))), "P(None, 'a')");
  EXPECT_EQ(with_sharding_constraint(x, P{unconstrained, "c"}).to_host<double>(), host.to_host<double>());
  for (const auto& refused :
       std::vector<std::function<void()>>{[&] { device_put(host, NamedSharding(mesh, P{unconstrained})); },
                                          [&] {
                                            reshard(x, P{"a", unconstrained});
                                          },
                                          [&] { NamedSharding(mesh, P{unconstrained}).shard_shape({3}); }})
    expect_error(ErrorKind::unconstrained, "leaves a dim of the shape", refused);
}

TEST(Reshard, MovesEveryElementTypeBetweenAnyTwoPlacements) {
  const Shape small{8, 8};
  for (const Mesh mesh : shared_and_private({{"a", 2}, {"b", 4}})) {
    for (const DType dtype : dtypes) {
      const at::Tensor whole = numbers(small, dtype);
      for (const PartitionSpec& from : placements(mesh, small))
        for (const PartitionSpec& to : placements(mesh, small)) {
          const Array x = device_put(from_tensor(whole), NamedSharding(mesh, without_sets(from)));
          const Array y = reshard(x, without_sets(to));
          EXPECT_TRUE(at::equal(to_tensor(y), whole)) << x.type_string() << " to " << y.type_string();
          EXPECT_TRUE(y.sharding() == NamedSharding(mesh, without_sets(to)));
        }
    }
  }
}

TEST(Reshard, StaysOnItsMesh) {
  const Mesh mesh = make_mesh({{"a", 2}, {"b", 4}});
  const Array host = from_tensor(random_tensor({8, 8}, 1)), x = device_put(host, NamedSharding(mesh, P{"a"}));
  CommLedger ledger;
  const Array y = reshard(x, P{none, "a"});
  EXPECT_EQ(y.type_string(), "float64[8,8@a]");
  EXPECT_EQ(ledger.count("all_to_all"), 1);
  EXPECT_EQ(y.to_host<double>(), host.to_host<double>());
  EXPECT_EQ(reshard(host, NamedSharding(mesh, P{"b"})).type_string(), "float64[8@b,8]");
  expect_error(ErrorKind::device_mismatch,
               "[reshard] float64[8@a,8] is on the mesh (a=2, b=4), the target is the mesh (z=8)",
               [&] { reshard(x, NamedSharding(make_mesh({{"z", 8}}), P{"z"})); });
  expect_error(ErrorKind::device_mismatch, "[reshard] float64[8,8] is not placed", [&] { reshard(host, P{"a"}); });
}

}  // namespace
}  // namespace tessera::make_array_test
