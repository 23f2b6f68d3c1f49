// The global norm on meshes: each element counts once, and one number is communicated.
#include "optim/formulas/global_norm.h"

#include "nn/transformations/value_and_grad.h"
#include "tests/optim/support.h"
#include "tests/sharding/meshes.h"

namespace tessera::optim::global_norm_test {
namespace {

double expected_norm(const Toy& toy) {
  double squares = 0;
  for (const nn::Leaf& leaf : nn::leaves(toy))
    for (const float x : host(*leaf.value)) squares += static_cast<double>(x) * x;
  return std::sqrt(squares);
}

TEST(GlobalNorm, CountsEveryElementOnceAndCommunicatesOneNumber) {
  const double expected = expected_norm(Toy::init(0));
  on_all_meshes([&](const Case& c, const MeshRules& mesh_rules) {
    const Toy toy = nn::filter_shard(Toy::init(0), mesh_rules);
    CommLedger ledger;
    const Array norm = global_norm(toy);
    EXPECT_NEAR(norm.item<float>(), expected, 1e-5);
    EXPECT_EQ(norm.ndim(), 0);
    EXPECT_TRUE(norm.sharding().is_fully_replicated());
    EXPECT_EQ(ledger.count(), c.norm_axes.empty() ? 0 : 1);
    if (c.norm_axes.empty()) return;
    EXPECT_EQ(ledger.count("all_reduce", c.norm_axes), 1);
    EXPECT_EQ(ledger.bytes(), 4);
    EXPECT_EQ(ledger.records()[0].operation, "global_norm");
  });
}

TEST(GlobalNorm, OfArraysThatWereNeverPlaced) {
  CommLedger ledger;
  EXPECT_NEAR(global_norm(Toy::init(3)).item<float>(), expected_norm(Toy::init(3)), 1e-5);
  EXPECT_EQ(global_norm(std::vector<Array>{}).item<float>(), 0);
  EXPECT_EQ(global_norm(std::vector<Array>{{}, full({4}, 2)}).item<float>(), 4);
  EXPECT_EQ(ledger.count(), 0);
}

TEST(GlobalNorm, HalfPrecisionIsAddedUpInFloat32) {
  const Array norm = global_norm(std::vector<Array>{ones({1000, 10}, bfloat16), ones({1, 1})});
  EXPECT_EQ(norm.dtype(), float32);
  EXPECT_NEAR(norm.item<float>(), std::sqrt(10001.0), 1e-3);
  EXPECT_EQ(global_norm(std::vector<Array>{ones({2}), full({2}, 1e-9, float64)}).dtype(), float64);
}

TEST(GlobalNorm, OfMillionsOfElementsIsExact) {
  for (const DType dtype : {float32, bfloat16})
    EXPECT_NEAR(global_norm(std::vector<Array>{full({5'000'001}, 1.5, dtype)}).item<float>(),
                1.5 * std::sqrt(5'000'001.0), 1e-3);
}

TEST(GlobalNorm, PartialSumsAreReducedFirst) {
  for (const Mesh mesh : tessera::testing::shared_and_private({{"data", 4}})) {
    const Array x = device_put(normal(Key(1), {8, 3}), NamedSharding(mesh, P{"data"}));
    const Array pending = sum(x, {0});
    ASSERT_NE(pending.type_string().find("{U:data}"), std::string::npos);
    CommLedger ledger;
    const float norm = global_norm(std::vector<Array>{pending, x}).item<float>();
    const std::vector<float> sums = host(pending), all = host(x);
    double squares = 0;
    for (const float v : sums) squares += static_cast<double>(v) * v;
    for (const float v : all) squares += static_cast<double>(v) * v;
    EXPECT_NEAR(norm, std::sqrt(squares), 1e-5);
    EXPECT_EQ(ledger.count("all_reduce", "data"), 2);
  }
}

TEST(GlobalNorm, OfGradientsGivenAwayIsAnError) {
  Toy model = Toy::init(3), grads = Toy::init(4);
  auto optimizer = Optimizer(model, sgd({.learning_rate = 0.1}));
  optimizer.update(model, std::move(grads));
  EXPECT_EQ(error_of(ErrorKind::missing_array, [&] { global_norm(grads); }),
            "[global_norm] every array is absent: a filter took them out, or the tree was given away with std::move, "
            "as to optimizer.update(model, std::move(grads)). Take the norm before.");
}

TEST(GlobalNorm, ArraysOnTwoMeshesAreAnError) {
  const Array a = device_put(ones({4}), NamedSharding(make_mesh({{"data", 2}}), P{}));
  const Array b = device_put(ones({4}), NamedSharding(make_mesh({{"data", 4}}), P{}));
  error_of(ErrorKind::device_mismatch, [&] { global_norm(std::vector<Array>{a, b}); });
}

// jax.grad of mean(square(w)) + optax.global_norm(w) at (3, 4) is (3.6, 4.8).
TEST(GlobalNorm, HasAGradientInALoss) {
  using Tree = std::vector<Array>;
  const auto loss = [](const Tree& w) { return mean(square(w[0])) + global_norm(w); };
  const Mesh mesh = make_mesh({{"data", 2}});
  const Array w = array<float>({3, 4});
  for (const Array& placed : {w, device_put(w, NamedSharding(mesh, P{"data"})), device_put(w, {mesh, P{}})}) {
    const auto [value, gradient] = nn::value_and_grad(loss)(Tree{placed});
    EXPECT_NEAR(value.item<float>(), 17.5, 1e-5);
    expect_near(gradient[0], {3.6f, 4.8f}, 1e-5);
  }
}

}  // namespace
}  // namespace tessera::optim::global_norm_test
