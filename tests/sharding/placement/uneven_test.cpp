// Dimensions that their mesh axes do not divide: blocks are padded, visible only in the devices' memory.
#include "sharding/base/environment.h"
#include "sharding/placement/mesh_rules.h"
#include "sharding/shard_map.h"
#include "tests/sharding/expect_error.h"
#include "tests/sharding/law.h"

namespace tessera::uneven_test {
namespace {

using namespace tessera::testing;

Array counted(const Shape& shape, const NamedSharding& sharding) {
  return device_put(from_tensor(at::arange(1, c10::multiply_integers(shape) + 1, at::kDouble).view(shape)), sharding);
}

TEST(Uneven, TheArrayHasItsSizeAndTheDevicesHavePaddedBlocks) {
  const Mesh mesh = make_mesh({{"x", 4}});
  const NamedSharding sharding(mesh, P{{"x", Uneven::pad}});
  const Array x = counted({5}, sharding);
  EXPECT_EQ(x.type_string(), "float64[5+3@x]");
  EXPECT_EQ(x.shape(), Shape{5});
  EXPECT_EQ(x.nbytes(), 40);
  EXPECT_EQ(x.shard_bytes(), 16);
  EXPECT_EQ(sharding.shard_shape({5}), Shape{2});
  EXPECT_EQ(sharding.to_string(), "NamedSharding(mesh=Mesh('x': 4), spec=P('x' padded))");
  EXPECT_EQ(x.sharding(), sharding);
  const std::vector<IndexRanges> blocks{{{0, 2}}, {{2, 4}}, {{4, 5}}, {{5, 5}}};
  EXPECT_EQ(sharding.devices_indices_map({5}), blocks);
  EXPECT_EQ(x.to_host<double>(), (std::vector<double>{1, 2, 3, 4, 5}));
  const std::vector<Shard> shards = x.addressable_shards();
  EXPECT_EQ(shards[2].data.to_host<double>(), std::vector<double>{5});
  EXPECT_EQ(shards[3].data.shape(), Shape{0});
  EXPECT_EQ(device_put(counted({8}, sharding), sharding).type_string(), "float64[8@x]");  // needs no padding
}

TEST(Uneven, IsAnErrorUnlessItIsAskedFor) {
  const Mesh mesh = make_mesh({{"model", 8}});
  expect_error(
      ErrorKind::not_divisible,
      "[device_put] dim 0 of (5) = 5 is not divisible by mesh axis \"model\" = 8. Change the spec, the mesh or "
      "the dim. With Uneven::pad its blocks are padded.",
      [&] { counted({5}, NamedSharding(mesh, P{"model"})); });
  expect_error(ErrorKind::not_divisible,
               "[MeshRules] dim 0 \"vocab\" = 50257 is not divisible by mesh axis \"model\" = 8. Change the dim, "
               "Rules{\"vocab\"} or the mesh. With Uneven::pad the dim is padded.",
               [&] { MeshRules(mesh, {{"vocab", "model"}}).resolve({"vocab"}, {50257}); });
}

TEST(Uneven, ARuleOrAllMeshRulesPad) {
  const Mesh mesh = make_mesh({{"data", 2}, {"model", 8}});
  const auto spec = [](const MeshRules& mesh_rules, const Axes& axes, const Shape& shape) {
    return mesh_rules.resolve(axes, shape).spec.to_string();
  };
  const MeshRules one{mesh, {{"vocab", "model", Uneven::pad}, {"embed", "data"}}};
  EXPECT_EQ(spec(one, {"vocab", "embed"}, {50257, 4}), "P('model' padded, 'data')");
  EXPECT_EQ(spec(one, {"vocab", "embed"}, {64, 4}), "P('model', 'data')");
  EXPECT_THROW(one.resolve({"embed"}, {5}), Error);
  EXPECT_EQ(one.rules().to_string(), "\"vocab\" -> \"model\", Uneven::pad, \"embed\" -> \"data\"");
  const MeshRules all{mesh, {{"vocab", "model"}, {"embed", {"data", "model"}}}, {.uneven = Uneven::pad}};
  EXPECT_EQ(spec(all, {"embed"}, {5}), "P(('data', 'model') padded)");
  EXPECT_EQ(spec(all, {mesh_axis("data")}, {5}), "P('data' padded)");
  EXPECT_NE(all, MeshRules(mesh, {{"vocab", "model"}, {"embed", {"data", "model"}}}));
  const MeshRules paths{
      mesh,
      {{ParamPattern{"a.**"}, P{none, {"model", Uneven::pad}}}, {ParamPattern{}, longest_dim("model"), Uneven::pad}}};
  EXPECT_EQ(paths.resolve({none, none}, {3, 5}, "MeshRules", "a.b").spec.to_string(), "P(None, 'model' padded)");
  EXPECT_EQ(paths.resolve({none, none}, {8, 13}, "MeshRules", "b").spec.to_string(), "P('model', None)");  // no padding
  EXPECT_EQ(paths.resolve({none, none}, {7, 13}, "MeshRules", "b").spec.to_string(), "P(None, 'model' padded)");
}

TEST(Uneven, AnOperationThatTakesNoPaddingThrows) {
  const Mesh mesh = make_mesh({{"x", 2}});
  const Array x = counted({5}, NamedSharding(mesh, P{{"x", Uneven::pad}}));
  CommLedger ledger;
  const Array sorted = sort(x);
  EXPECT_EQ(sorted.type_string(), "float64[5]");
  ASSERT_EQ(ledger.records().size(), 1u);
  EXPECT_EQ(ledger.records()[0].reason,
            "sort does not support padding, which dim 0 of the operand float64[5+1@x] has, so the operand is resharded "
            "to float64[5]");
}

TEST(Uneven, EmptyBlocksAreNoReplicas) {
  const NamedSharding sharding(make_mesh({{"x", 8}, {"y", 2}}), P{{"x", Uneven::pad}});
  std::vector<int> ids;
  for (int i = 0; i < 8; ++i) ids.insert(ids.end(), {0, 1});
  EXPECT_EQ(sharding.replica_ids({5}), ids);
  EXPECT_EQ(sharding.distinct_shard_count({5}), 8);
}

// On 8 devices the last three have only padding, whose variance is 0.
TEST(Uneven, NormsWithoutEpsilonHaveNoNanFromPadding) {
  const at::Tensor x = random_tensor({5, 4}, 1), scale = random_tensor({4}, 2), bias = random_tensor({4}, 3);
  const auto rms = [](const at::Tensor& t) { return t * t.square().mean(-1, true).rsqrt(); };
  const std::vector<Function> norms{{"layer_norm",
                                     {x, scale, bias},
                                     [](const auto& a) { return layer_norm(a[0], a[1], a[2], 0); },
                                     [](const auto& t) { return at::layer_norm(t[0], {4}, t[1], t[2], 0); }},
                                    {"layer_norm without scale",
                                     {x},
                                     [](const auto& a) { return layer_norm(a[0], 0); },
                                     [](const auto& t) { return at::layer_norm(t[0], {4}, {}, {}, 0); }},
                                    {"rms_norm",
                                     {x, scale},
                                     [](const auto& a) { return rms_norm(a[0], a[1], 0); },
                                     [=](const auto& t) { return rms(t[0]) * t[1]; }},
                                    {"rms_norm without scale",
                                     {x},
                                     [](const auto& a) { return rms_norm(a[0], 0.0); },
                                     [=](const auto& t) { return rms(t[0]); }}};
  const detail::CheckScope padding_is_zeros;
  for (const Function& norm : norms)
    for (const int n : {2, 8}) expect_law(norm, {{"x", n}}, 12, false, {}, 12, Uneven::pad);
}

TEST(Uneven, DropoutHasTheBitsOfOneDevice) {
  const Array x = from_tensor(random_tensor({5, 7}, 1));
  const at::Tensor expected = to_tensor(dropout(Key(3), x, 0.4));
  for (const std::vector<MeshAxis>& axes : std::vector<std::vector<MeshAxis>>{{{"a", 7}}, {{"a", 3}, {"b", 5}}}) {
    const std::vector<PartitionSpec> specs = placements(make_mesh(axes), x.shape(), false, Uneven::pad);
    for (const PartitionSpec& spec : specs) {
      if (!spec.unreduced_axes().empty()) continue;
      const Array placed = device_put(x, NamedSharding(make_mesh(axes), spec));
      EXPECT_TRUE(to_tensor(dropout(Key(3), placed, 0.4)).equal(expected)) << spec.to_string();
    }
  }
}

TEST(Uneven, ShardMapTakesNoPaddedArgument) {
  const Mesh mesh = make_mesh({{"x", 2}});
  const Array x = counted({5}, NamedSharding(mesh, P{{"x", Uneven::pad}}));
  expect_error(ErrorKind::not_divisible,
               "[shard_map] argument 0, float64[5+1@x]: dim 0 = 5 is not divisible by 2, the devices along \"x\" of "
               "P('x').",
               [&] { shard_map([](const Array& a) { return psum(a, "x"); }, mesh, P{"x"}, P{})(x); });
}

// ---- random chains of operations

struct Link {
  const char* name;
  Array (*ours)(const Array&);
  at::Tensor (*theirs)(const at::Tensor&);
};

// Each takes a matrix and returns one of the same or of the transposed shape.
const Link links[] = {
    {"exp", [](const Array& x) { return exp(-square(x)); }, [](const at::Tensor& t) { return (-t.square()).exp(); }},
    {"divide", [](const Array& x) { return x / (1 + abs(x)); }, [](const at::Tensor& t) { return t / (1 + t.abs()); }},
    {"softmax", [](const Array& x) { return softmax(x, 0); }, [](const at::Tensor& t) { return at::softmax(t, 0); }},
    {"log_softmax", [](const Array& x) { return log_softmax(x); },
     [](const at::Tensor& t) { return at::log_softmax(t, -1); }},
    {"center", [](const Array& x) { return x - mean(x, {0}, true); },
     [](const at::Tensor& t) { return t - t.mean(0, true); }},
    {"max", [](const Array& x) { return x * max(x, {1}, true); },
     [](const at::Tensor& t) { return t * t.amax(1, true); }},
    {"norm", [](const Array& x) { return x / norm(x + 3); },
     [](const at::Tensor& t) { return t / at::linalg_vector_norm(t + 3); }},
    {"cumsum", [](const Array& x) { return cumsum(x, 1); }, [](const at::Tensor& t) { return t.cumsum(1); }},
    {"sort", [](const Array& x) { return sort(x, 0); },
     [](const at::Tensor& t) { return std::get<0>(at::sort(t, true, 0, false)); }},
    {"argmax", [](const Array& x) { return x * astype(argmax(x, 0, true), float64); },
     [](const at::Tensor& t) { return t * t.argmax(0, true).to(at::kDouble); }},
    {"transpose", [](const Array& x) { return transpose(x); }, [](const at::Tensor& t) { return t.t(); }},
    {"gram", [](const Array& x) { return matmul(matmul(x, transpose(x)), x) / 50; },
     [](const at::Tensor& t) { return at::matmul(at::matmul(t, t.t()), t) / 50; }},
    {"flip", [](const Array& x) { return flip(x, {0}) + x; }, [](const at::Tensor& t) { return t.flip(0) + t; }},
    {"roll", [](const Array& x) { return where(x > 0, roll(x, 1, 1), 0.5 * x); },
     [](const at::Tensor& t) { return at::where(t > 0, t.roll(1, 1), 0.5 * t); }},
    {"join",
     [](const Array& x) {
       return slice_in_dim(concatenate({x, square(x)}), 1, 1 + x.shape(0), 0);
     },
     [](const at::Tensor& t) {
       return at::cat({t, t.square()}).narrow(0, 1, t.size(0));
     }},
    {"take", [](const Array& x) { return x + take(x, array<int32_t>({0}, {1}), 0); },
     [](const at::Tensor& t) { return t + t.narrow(0, 0, 1); }},
    {"scatter", [](const Array& x) { return scatter_add(x, array<int32_t>({0}, {1}), sum(square(x), {0}, true)); },
     [](const at::Tensor& t) {
       return at::cat({t.narrow(0, 0, 1) + t.square().sum(0, true), t.narrow(0, 1, t.size(0) - 1)});
     }},
};

Function random_chain(const Shape& shape, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Link> chain;
  std::vector<std::string> names;
  for (int i = 0; i < 5; ++i) names.emplace_back(chain.emplace_back(links[random() % std::size(links)]).name);
  return {fmt::format("{}", fmt::join(names, ", ")),
          {random_tensor(shape, seed)},
          [=](const std::vector<Array>& a) {
            Array x = a[0];
            for (const Link& link : chain) x = link.ours(x);
            return x;
          },
          [=](const std::vector<at::Tensor>& a) {
            at::Tensor t = a[0];
            for (const Link& link : chain) t = link.theirs(t);
            return t;
          },
          1e-10};
}

TEST(Uneven, ChainsOfOperationsOnOddMeshes) {
  const detail::CheckScope padding_is_zeros;
  uint64_t seed = 0;
  for (const std::vector<MeshAxis>& axes :
       std::vector<std::vector<MeshAxis>>{{{"a", 7}}, {{"a", 3}, {"b", 5}}, {{"a", 2}, {"b", 2}, {"c", 2}}})
    for (const Shape& shape : {Shape{5, 7}, {1, 13}, {2, 3}})
      for (int i = 0; i < 8; ++i) expect_law(random_chain(shape, ++seed), axes, 3, false, {}, 3, Uneven::pad);
}

}  // namespace
}  // namespace tessera::uneven_test
