// Dims that their mesh axes do not divide: blocks are padded, and nothing but the devices' memory shows it.
#include "sharding/diagnostics/check_mode.h"
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

// ---- the law with dims of 5, 7 and 13

using Given = const std::vector<Array>&;
using Tensors = const std::vector<at::Tensor>&;

std::vector<Function> functions() {
  const at::Tensor x = random_tensor({5, 7}, 1), y = random_tensor({5, 7}, 2), w = random_tensor({7, 13}, 3);
  const at::Tensor cube = random_tensor({5, 7, 13}, 4), table = random_tensor({13, 5}, 5);
  const at::Tensor ids = random_integers({5, 7}, 13, 6), labels = random_integers({5, 7}, 13, 7);
  return {
      {"x * y + exp(x)",
       {x, y},
       [](Given a) { return a[0] * a[1] + exp(a[0]); },
       [](Tensors t) { return t[0] * t[1] + t[0].exp(); }},
      {"1 / sqrt(abs(x))",
       {x},
       [](Given a) { return 1 / sqrt(abs(a[0])); },
       [](Tensors t) { return t[0].abs().rsqrt(); }},
      {"x / y, broadcast",
       {x, random_tensor({7}, 8)},
       [](Given a) { return a[0] / a[1]; },
       [](Tensors t) { return t[0] / t[1]; }},
      {"matmul", {x, w}, [](Given a) { return matmul(a[0], a[1]); }, [](Tensors t) { return at::matmul(t[0], t[1]); }},
      {"einsum",
       {cube, w},
       [](Given a) { return einsum("bij,ij->bj", a); },
       [](Tensors t) { return at::einsum("bij,ij->bj", t); }},
      {"transpose and mean",
       {cube},
       [](Given a) {
         return mean(transpose(a[0], {2, 0, 1}), {1});
       },
       [](Tensors t) {
         return t[0].permute({2, 0, 1}).mean(1);
       }},
      {"sum",
       {cube},
       [](Given a) {
         return sum(a[0], {0, 2});
       },
       [](Tensors t) {
         return at::sum(t[0], at::IntArrayRef{0, 2});
       }},
      {"max", {cube}, [](Given a) { return max(a[0], {1}); }, [](Tensors t) { return t[0].amax(1); }},
      {"min of negative",
       {cube},
       [](Given a) { return min(1 + square(a[0]), {2}); },
       [](Tensors t) { return (1 + t[0].square()).amin(2); }},
      {"argmax",
       {cube},
       [](Given a) { return argmax(a[0] - 10, 2); },
       [](Tensors t) { return t[0].argmax(2).to(at::kInt); }},
      {"softmax", {cube}, [](Given a) { return softmax(a[0]); }, [](Tensors t) { return at::softmax(t[0], -1); }},
      {"log_softmax",
       {cube},
       [](Given a) { return log_softmax(a[0], 1); },
       [](Tensors t) { return at::log_softmax(t[0], 1); }},
      {"logsumexp",
       {cube},
       [](Given a) { return logsumexp(a[0], {0}); },
       [](Tensors t) { return at::logsumexp(t[0], 0); }},
      {"norm",
       {cube},
       [](Given a) { return norm(a[0], {1}); },
       [](Tensors t) { return at::linalg_vector_norm(t[0], 2, 1); }},
      {"embedding",
       {table, ids},
       [](Given a) { return embedding(a[0], a[1]); },
       [](Tensors t) {
         return t[0].index_select(0, t[1].reshape({-1})).view({5, 7, 5});
       }},
      {"cross_entropy",
       {cube, labels},
       [](Given a) { return cross_entropy(a[0], a[1], {.label_smoothing = 0.1, .z_loss = 0.2}); },
       [](Tensors t) {
         const at::Tensor rows = t[0].reshape({35, 13});
         return at::cross_entropy_loss(rows, t[1].reshape({35}).to(at::kLong), {}, at::Reduction::Mean, -100, 0.1) +
                0.2 * rows.logsumexp(-1).square().mean();
       }},
      {"layer_norm",
       {cube, random_tensor({13}, 9), random_tensor({13}, 10)},
       [](Given a) { return layer_norm(a[0], a[1], a[2]); },
       [](Tensors t) { return at::layer_norm(t[0], {13}, t[1], t[2]); }},
  };
}

TEST(Uneven, DimsOf5And7And13OnAxesOf2And3And4And8) {
  const detail::CheckScope padding_is_zeros;
  int cases = 0;
  for (const Function& f : functions())
    for (const std::vector<MeshAxis>& axes : std::vector<std::vector<MeshAxis>>{
             {{"a", 2}}, {{"a", 3}}, {{"a", 4}}, {{"a", 8}}, {{"a", 2}, {"b", 3}}, {{"a", 4}, {"b", 2}}})
      cases += expect_law(f, axes, 12, false, {}, 16, uneven::pad);
  std::cout << cases << " cases\n";
}

}  // namespace
}  // namespace tessera
