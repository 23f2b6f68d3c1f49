// Dims that their mesh axes do not divide: blocks are padded, and nothing but the devices' memory shows it.
#include "sharding/placement/layout.h"
#include "tests/sharding/expect_error.h"
#include "tests/sharding/law.h"

namespace tessera {
namespace {

using namespace tessera::testing;

Array counted(const Shape& shape, const NamedSharding& sharding) {
  return device_put(from_tensor(at::arange(1, c10::multiply_integers(shape) + 1, at::kDouble).view(shape)), sharding);
}

TEST(Uneven, TheArrayHasItsSizeAndTheDevicesHavePaddedBlocks) {
  const Mesh mesh = make_mesh({{"x", 4}});
  const NamedSharding sharding(mesh, P{{"x", uneven::pad}});
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
  EXPECT_EQ(device_put(counted({8}, sharding), sharding).type_string(), "float64[8@x]");  // there is nothing to pad
}

TEST(Uneven, IsAnErrorUnlessItIsAskedFor) {
  const Mesh mesh = make_mesh({{"model", 8}});
  expect_error(
      ErrorKind::uneven,
      "[device_put] dim 0 of (5) = 5 is not divisible by mesh axis \"model\" = 8. Change the spec, the mesh or "
      "the dim. With uneven::pad its blocks are padded.",
      [&] { counted({5}, NamedSharding(mesh, P{"model"})); });
  expect_error(ErrorKind::uneven,
               "[Layout] dim 0 \"vocab\" = 50257 is not divisible by mesh axis \"model\" = 8. Change the dim, "
               "Rules{\"vocab\"} or the mesh. With uneven::pad the dim is padded.",
               [&] {
                 Layout(mesh, {{"vocab", "model"}}).resolve({"vocab"}, {50257});
               });
}

TEST(Uneven, ARuleOrAWholeLayoutPads) {
  const Mesh mesh = make_mesh({{"data", 2}, {"model", 8}});
  const auto spec = [](const Layout& layout, const Axes& axes, const Shape& shape) {
    return layout.resolve(axes, shape).spec.to_string();
  };
  const Layout one{mesh, {{"vocab", "model", uneven::pad}, {"embed", "data"}}};
  EXPECT_EQ(spec(one, {"vocab", "embed"}, {50257, 4}), "P('model' padded, 'data')");
  EXPECT_EQ(spec(one, {"vocab", "embed"}, {64, 4}), "P('model', 'data')");
  EXPECT_THROW(one.resolve({"embed"}, {5}), Error);
  EXPECT_EQ(one.rules().to_string(), "\"vocab\" -> \"model\", uneven::pad, \"embed\" -> \"data\"");
  const Layout all{mesh, {{"vocab", "model"}, {"embed", {"data", "model"}}}, {.uneven = uneven::pad}};
  EXPECT_EQ(spec(all, {"embed"}, {5}), "P(('data', 'model') padded)");
  EXPECT_EQ(spec(all, {mesh_axis("data")}, {5}), "P('data' padded)");
  EXPECT_NE(all, Layout(mesh, {{"vocab", "model"}, {"embed", {"data", "model"}}}));
  const Layout paths{
      mesh, {{Arrays{"a.**"}, P{none, {"model", uneven::pad}}}, {Arrays{}, longest_dim("model"), uneven::pad}}};
  EXPECT_EQ(paths.resolve({none, none}, {3, 5}, "Layout", "a.b").spec.to_string(), "P(None, 'model' padded)");
  EXPECT_EQ(paths.resolve({none, none}, {8, 13}, "Layout", "b").spec.to_string(), "P('model', None)");  // no padding
  EXPECT_EQ(paths.resolve({none, none}, {7, 13}, "Layout", "b").spec.to_string(), "P(None, 'model' padded)");
}

TEST(Uneven, AnOperationThatTakesNoPaddingSaysSo) {
  const Mesh mesh = make_mesh({{"x", 2}});
  const Array x = counted({5}, NamedSharding(mesh, P{{"x", uneven::pad}}));
  CommLedger ledger;
  const Array sorted = sort(x);
  EXPECT_EQ(sorted.type_string(), "float64[5]");
  ASSERT_EQ(ledger.records().size(), 1u);
  EXPECT_EQ(ledger.records()[0].reason,
            "sort takes no padding, which dim 0 of the operand float64[5+1@x] has, so the operand is brought to "
            "float64[5]");
}

}  // namespace
}  // namespace tessera
