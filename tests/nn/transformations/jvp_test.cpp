// jvp and hvp: closed forms, central differences in float64, shardings, and their errors.
#include "nn/transformations/jvp.h"

#include "nn/transformations/cast.h"
#include "nn/transformations/remat.h"
#include "sharding/shard_map.h"
#include "tests/nn/transformations/models.h"

namespace tessera::nn::jvp_test {
namespace {

using testing::Batch;
using testing::difference;
using testing::expect_near;
using testing::mse;

struct Stack {
  std::vector<Mlp> layers;
  Array steps = array<int32_t>({1, 2});
  Buffer mean{ones({4}), {"embed"}};
};
Array of_stack(Stack& model, const Batch& batch) {
  Array x = batch.x.value + model.mean.value;
  for (const Mlp& layer : model.layers) x = x + nn::remat(layer)(x);
  model.mean.value = mean(stop_gradient(x), {0});
  return mean(square(x - batch.y.value));
}

TEST(Hvp, equals_central_differences_on_every_mesh) {
  Stack model{.layers = {testing::make_mlp(), Mlp::init(Key(3), {"embed", 4}, {"hidden", 8})}};
  model = cast(model, float64);
  const auto random = [](const std::string& path, const Array& x) {
    return is_floating(x.dtype()) ? normal(Key(path.size()), x.shape(), float64) : x;
  };
  const Stack vector = tree_map_with_path(random, model);
  const Batch batch = cast(testing::make_batch(), float64);
  const auto gradient_at = [&](double step) {
    const auto moved = [&](const Array& x, const Array& v) { return is_floating(x.dtype()) ? x + step * v : x; };
    Stack there = tree_map(moved, model, vector);
    there.mean = model.mean;
    return grad(of_stack)(there, batch);
  };
  constexpr double h = 1e-4;
  const auto slope = [](const Array& a, const Array& b, const Array& c, const Array& d) {
    return (8 * (a - b) - (c - d)) / (12 * h);  // the error is of the order of h^4
  };
  const Stack expected = tree_map(slope, gradient_at(h), gradient_at(-h), gradient_at(2 * h), gradient_at(-2 * h));
  std::vector<testing::Strategy> all = testing::strategies();
  all.push_back({"stages", MeshRules(make_mesh({{"stage", 2}, {"data", 2}}),
                                     {{"layers", "stage"}, {"batch", "data"}, {ParamPattern{}, replicated}})});
  for (const auto& [name, mesh_rules] : all) {
    const Stack placed = filter_shard(model, mesh_rules);
    const Batch rows = filter_shard(batch, mesh_rules);
    const Stack product = hvp(of_stack)(placed, rows, filter_shard(vector, mesh_rules));
    EXPECT_LT(difference(product, expected), 1e-9) << name;
    EXPECT_EQ(product.layers[0].up.kernel.value.type_string(), placed.layers[0].up.kernel.value.type_string());
    EXPECT_TRUE(product.steps.is_absent() && product.mean.value.is_absent());
    EXPECT_LT(difference(hvp(of_stack)(placed, rows, vector), expected), 1e-9) << name;  // an unplaced vector
  }
  const Filter first = by_path("layers.0.**");
  const Stack block = hvp(of_stack, first)(model, batch, nn::filter(vector, first));
  const Stack alone = hvp(of_stack)(model, batch, nn::filter(vector, first));  // zero in the other layer
  EXPECT_LT(difference(block.layers[0], alone.layers[0]), 1e-12);
  EXPECT_TRUE(block.layers[1].up.kernel.value.is_absent());
}

TEST(Jvp, equals_the_closed_form_also_inside_shard_map_and_value_and_grad) {
  const Array x = normal(Key(1), {8, 4}), w = normal(Key(2), {4, 2}), dx = normal(Key(3), {8, 4});
  const auto f = [](const Array& a, const Array& b) { return std::pair(sin(matmul(a, b)), argmax(a, -1)); };
  const auto [y, dy] = jvp(f)(std::tuple(x, w), std::tuple(dx, 2 * w));
  const Array expected = cos(matmul(x, w)) * (matmul(dx, w) + 2 * matmul(x, w));
  expect_near(y.first, sin(matmul(x, w)), 1e-6, "value");
  expect_near(dy.first, expected, 1e-6, "tangent");
  const Mesh mesh = make_mesh({{"data", 4}});
  const auto inside = [&](const Array& a, const Array& da) {
    return jvp(f)(std::tuple(a, w), std::tuple(da, 2 * w)).second.first;
  };
  expect_near(shard_map(inside, mesh, Specs{P{"data"}, P{"data"}}, P{"data"})(x, dx), expected, 1e-6, "shard_map");
  const auto outer = [&](const Array& a) {
    const auto [value, tangent] = jvp([](const Array& z) { return sin(z); })(a, dx);
    return sum(value + tangent);
  };
  expect_near(grad(outer)(x), cos(x) - sin(x) * dx, 1e-6, "the gradient of both results");
}

TEST(Jvp, a_derivative_may_be_zero) {
  const Array x = normal(Key(1), {3}), zero = zeros({3});
  expect_near(hvp([](const Array& a) { return sum(2 * a); })(x, x), zero, 0, "linear");
  expect_near(jvp([&](const Array&) { return x; })(x, x).second, zero, 0, "constant");
}

TEST(Jvp, errors) {
  using List = std::vector<Array>;
  const Array x = normal(Key(1), {3});
  const auto refuse = [&](ErrorKind kind, const char* words, const List& direction) {
    testing::expect_error_with(kind, {words},
                               [&] { jvp([](const List& a) { return a[0] * a[0]; })(List{x}, direction); });
  };
  refuse(ErrorKind::shape_mismatch,
         "[jvp] 0: the direction has float32[2], expected the shape and element type of float32[3]. Make it from the "
         "tree, for example with tree_map.",
         {ones({2})});
  refuse(ErrorKind::dtype_mismatch, "[jvp] 0: the direction has float64[3]", {astype(x, float64)});
  refuse(ErrorKind::missing_array, "[jvp] the direction has no array that can be differentiated", {Array()});
  refuse(ErrorKind::invalid_argument, "[jvp] 1: the other tree has", {x, x});
  testing::expect_error_with(ErrorKind::no_gradient, {"[jvp] the function returns no floating array"},
                             [&] { jvp([](const Array& a) { return argmax(a, 0); })(x, x); });
  testing::expect_error_with(ErrorKind::shape_mismatch, {"[hvp] the direction has float32[2]"},
                             [&] { hvp([](const Array& a) { return sum(a); })(x, ones({2})); });
}

}  // namespace
}  // namespace tessera::nn::jvp_test
