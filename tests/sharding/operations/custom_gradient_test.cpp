// Custom gradients: kernels without LibTorch's autograd, functions of arrays, and wrong uses.
// The validator and the random programs have more functions (cases_custom.cpp).
#include "sharding/operations/custom_gradient.h"

#include "sharding/autodiff/remat.h"
#include "sharding/operations/define_operation.h"
#include "sharding/shard_map/shard_map.h"
#include "tests/sharding/expect_error.h"
#include "tests/sharding/step.h"

namespace tessera::testing::custom_gradient_test {
namespace {

using Arrays = const std::vector<Array>&;
const std::vector<MeshAxis> mesh_axes = {{"x", 2}, {"y", 2}};

// A kernel that LibTorch cannot see.
at::Tensor squares(const at::Tensor& x) {
  const at::Tensor in = x.contiguous(), out = at::empty_like(in);
  for (int64_t i = 0; i < in.numel(); ++i)
    out.data_ptr<double>()[i] = in.data_ptr<double>()[i] * in.data_ptr<double>()[i];
  return out;
}

at::Tensor squares_backward(const at::Tensor& g, const at::Tensor& x) {
  const at::Tensor in = x.contiguous(), cotangent = g.contiguous(), out = at::empty_like(in);
  for (int64_t i = 0; i < in.numel(); ++i)
    out.data_ptr<double>()[i] = 2 * in.data_ptr<double>()[i] * cotangent.data_ptr<double>()[i];
  return out;
}

auto squares_by_kernel() { return define_operation("squares", "*", squares, {.backward = squares_backward}); }

// The function saves the exponentials for its gradient.
auto exp_with_residual() {
  return define_operation(
      "saved_exp", "*",
      [](const at::Tensor& x) {
        const at::Tensor y = x.exp();
        return std::tuple(y, y);
      },
      {.backward = [](const at::Tensor& g, const at::Tensor&, const at::Tensor& y) { return g * y; }});
}

// Returns the gradient of sum(u * d sum(f(x)) / dx).
at::Tensor second_derivative(const std::function<Array(const Array&)>& f, const Array& x, const at::Tensor& u) {
  Tape outer({x});
  Array gradient;
  {
    Tape inner(outer.shadows(), {.differentiable = true});
    gradient = inner.gradients(sum(f(inner.shadows()[0])))[0];
  }
  return to_tensor(outer.gradients(sum(gradient * from_tensor(u)))[0]);
}

TEST(CustomGradient, KernelsObeyTheLaw) {
  const auto op = squares_by_kernel();
  const auto saving = exp_with_residual();
  const Function kernel{"squares",
                        {random_tensor({4, 4}, 1)},
                        [&](const auto& x) { return op(x[0]); },
                        [](const auto& t) { return t[0].square(); },
                        1e-12,
                        true};
  EXPECT_GT(expect_law(kernel, mesh_axes, 200), 50);
  const Function residual{"saved_exp",
                          {random_tensor({4, 4}, 1)},
                          [&](const auto& x) { return saving(x[0]); },
                          [](const auto& t) { return t[0].exp(); },
                          1e-12,
                          true};
  EXPECT_GT(expect_law(residual, mesh_axes, 200), 50);
}

// The custom gradient is used, not LibTorch's: both differ on purpose.
TEST(CustomGradient, ReplacesLibTorchsGradient) {
  const auto through = define_operation("straight_through", "*", [](const at::Tensor& x) { return x.round(); },
                                        {.backward = [](const at::Tensor& g, const at::Tensor&) { return g; }});
  const auto arrays = custom_gradient([](const Array& x) { return round(x); },
                                      [](const Array& x) { return std::pair(round(x), nullptr); },
                                      [](std::nullptr_t, const Array& g) { return 3.0 * g; });
  for (const Mesh mesh : shared_and_private({{"x", 2}})) {
    const Array x = placed(random_tensor({4}, 1), mesh, P{"x"});
    EXPECT_TRUE(at::equal(to_tensor(step({x}, [&](Arrays p) { return sum(through(p[0])); }).gradients[0]),
                          at::ones({4}, at::kDouble)));
    EXPECT_TRUE(at::equal(to_tensor(step({x}, [&](Arrays p) { return sum(arrays(p[0])); }).gradients[0]),
                          at::full({4}, 3, at::kDouble)));
    EXPECT_EQ(to_tensor(arrays(x)).sub(to_tensor(x).round()).abs().max().item<double>(), 0);
  }
}

// Data parallelism: the gradient of a weight is a partial sum, reduced once after the backward pass.
TEST(CustomGradient, ShardingsFollowFromTheRule) {
  using Pair = std::pair<at::Tensor, at::Tensor>;
  const auto product = define_operation("product", "i k, k j -> i j",
                                        [](const at::Tensor& a, const at::Tensor& b) { return a.matmul(b); },
                                        {.backward = [](const at::Tensor& g, const at::Tensor& a, const at::Tensor& b) {
                                          return Pair(g.matmul(b.t()), a.t().matmul(g));
                                        }});
  const Mesh mesh = make_mesh({{"data", 2}, {"model", 2}});
  const Array x = placed(random_tensor({4, 8}, 1), mesh, P{"data"});
  const Array w = placed(random_tensor({8, 8}, 2), mesh, P{{}, "model"}),
              v = placed(random_tensor({8, 8}, 3), mesh, P{"model"});
  const auto own = step({w, v}, [&](Arrays p) { return mean(product(product(x, p[0]), p[1])); });
  const auto libtorchs = step({w, v}, [&](Arrays p) { return mean(matmul(matmul(x, p[0]), p[1])); });
  EXPECT_EQ(own.communication, libtorchs.communication);
  for (int i = 0; i < 2; ++i)
    EXPECT_LE(difference(to_tensor(own.gradients[i]), to_tensor(libtorchs.gradients[i])), 1e-13);
}

TEST(CustomGradient, RematAndShardMap) {
  const auto op = squares_by_kernel();
  const auto doubled =
      custom_gradient([&](const Array& x) { return op(x); }, [&](const Array& x) { return std::pair(op(x), x); },
                      [](const Array& x, const Array& g) { return 4.0 * x * g; });
  for (const Mesh mesh : shared_and_private({{"x", 4}})) {
    const at::Tensor t = random_tensor({8, 3}, 1), u = random_tensor({3}, 2);
    const Array x = placed(t, mesh, P{"x"}), w = placed(u, mesh, {});
    const auto f = [&](const Array& a, const Array& b) { return psum(sum(doubled(a * b) + op(a)), "x"); };
    const auto in_shard_map = step({x, w}, [&](Arrays p) {
      return shard_map(f, mesh, {P{"x"}, P{}}, P{})(p[0], p[1]);
    });
    const auto recomputed = step({x, w}, [&](Arrays p) {
      return remat([&](Arrays a) { return std::vector<Array>{sum(doubled(a[0] * a[1]) + op(a[0]))}; }, {p[0], p[1]})[0];
    });
    for (const Step* got : {&in_shard_map, &recomputed}) {
      EXPECT_LE(difference(to_tensor(got->gradients[0]), 4 * t * u * u + 2 * t), 1e-13);
      EXPECT_LE(difference(to_tensor(got->gradients[1]), (4 * t * t * u).sum(0)), 1e-13);
    }
  }
}

TEST(CustomGradient, SecondDerivatives) {
  const auto cube =
      define_operation("cube", "*", [](const at::Tensor& x) { return x * x * x; },
                       {.backward = [](const at::Tensor& g, const at::Tensor& x) { return 3 * g * x * x; }});
  const auto exponential = custom_gradient([](const Array& x) { return exp(x); },
                                           [](const Array& x) {
                                             const Array y = exp(x);
                                             return std::pair(y, y);
                                           },
                                           [](const Array& y, const Array& g) { return y * g; });
  const at::Tensor x = random_tensor({4}, 1), u = random_tensor({4}, 2);
  for (const Mesh mesh : shared_and_private({{"x", 2}})) {
    const Array a = placed(x, mesh, P{"x"});
    EXPECT_LE(difference(second_derivative([&](const Array& y) { return cube(y); }, a, u), 6 * x * u), 1e-13);
    EXPECT_LE(difference(second_derivative([&](const Array& y) { return cube(2.0 * y); }, a, u), 48 * x * u), 1e-13);
    EXPECT_LE(difference(second_derivative([&](const Array& y) { return exponential(y); }, a, u), x.exp() * u), 1e-13);
    const auto kernel = squares_by_kernel();
    const auto residual = exp_with_residual();
    expect_error(ErrorKind::no_gradient, "[squares] is differentiated a second time",
                 [&] { second_derivative([&](const Array& y) { return kernel(y); }, a, u); });
    expect_error(ErrorKind::no_gradient, "[saved_exp] is differentiated a second time",
                 [&] { second_derivative([&](const Array& y) { return residual(y); }, a, u); });
  }
}

TEST(CustomGradient, KernelsAreNotCalledOnAbstractMeshes) {
  const auto op = squares_by_kernel();
  const auto saving = exp_with_residual();
  const auto arrays =
      custom_gradient([&](const Array& x) { return op(x); }, [&](const Array& x) { return std::pair(op(x), x); },
                      [](const Array& x, const Array& g) { return 2.0 * x * g; });
  const Mesh mesh = make_mesh({{"data", 64}}, {.abstract = true});
  Tape tape({device_put(zeros({128, 3}, DType::float64), NamedSharding(mesh, P{"data"}))});
  const Array loss = sum(arrays(saving(op(tape.shadows()[0]))));
  EXPECT_EQ(tape.gradients(loss)[0].type_string(), "float64[128@data,3]");
}

TEST(CustomGradient, IntegersAndAbsentCotangents) {
  const auto picked = define_operation(
      "picked", "i k, i -> i",
      [](const at::Tensor& x, const at::Tensor& ids) { return x.gather(1, ids.to(at::kLong).unsqueeze(1)).squeeze(1); },
      {.backward = [](const at::Tensor& g, const at::Tensor& x, const at::Tensor& ids) {
        return std::pair(at::zeros_like(x).scatter(1, ids.to(at::kLong).unsqueeze(1), g.unsqueeze(1)), at::Tensor());
      }});
  const auto first = custom_gradient([](const Array& a, const Array& b) { return a * b; },
                                     [](const Array& a, const Array& b) { return std::pair(a * b, b); },
                                     [](const Array& b, const Array& g) { return std::pair(g * b, Array()); });
  const Mesh mesh = make_mesh({{"x", 2}});
  const at::Tensor t = random_tensor({4, 3}, 1);
  const Array x = placed(t, mesh, P{"x"}), ids = placed(random_integers({4}, 3, 2), mesh, P{"x"});
  const auto got = step({x}, [&](Arrays p) { return sum(picked(p[0], ids) * picked(x, ids)); });
  const at::Tensor wanted = at::zeros_like(t).scatter(1, to_tensor(ids).to(at::kLong).unsqueeze(1),
                                                      t.gather(1, to_tensor(ids).to(at::kLong).unsqueeze(1)));
  EXPECT_LE(difference(to_tensor(got.gradients[0]), wanted), 1e-13);
  const auto halves = step({x, x}, [&](Arrays p) { return sum(first(p[0], p[1])); });
  EXPECT_LE(difference(to_tensor(halves.gradients[0]), t), 1e-13);
  EXPECT_EQ(to_tensor(halves.gradients[1]).abs().sum().item<double>(), 0);
}

TEST(CustomGradient, WithoutAnyCotangentTheGradientIsZero) {
  const auto operation =
      define_operation("constant", "*", [](const at::Tensor& t) { return t.clone(); },
                       {.backward = [](const at::Tensor&, const at::Tensor&) { return at::Tensor(); }});
  const auto arrays =
      custom_gradient([](const Array& a) { return a; }, [](const Array& a) { return std::pair(a, nullptr); },
                      [](std::nullptr_t, const Array&) { return Array(); });
  const Array x = placed(random_tensor({4, 2}, 1), make_mesh({{"x", 2}}), P{"x"});
  const auto sum_of_gradient = [&](const auto& op) {
    return to_tensor(step({x}, [&](Arrays p) { return sum(op(p[0])); }).gradients[0]).abs().sum().item().toDouble();
  };
  EXPECT_EQ(sum_of_gradient(operation), 0);
  EXPECT_EQ(sum_of_gradient(arrays), 0);
}

TEST(CustomGradient, WrongFunctionsAreNamed) {
  const Array x = from_tensor(random_tensor({4, 2}, 1));
  const auto same = [](const at::Tensor& t) { return t.clone(); };
  const auto step_of = [&](const auto& op) { step({x}, [&](Arrays p) { return sum(op(p[0])); }); };
  const auto two = define_operation(
      "two", "*", same, {.backward = [](const at::Tensor& g, const at::Tensor&, const at::Tensor&) { return g; }});
  expect_error(ErrorKind::invalid_argument,
               "[two] .backward takes 3 tensors, expected 2: the cotangent, the operands (1)", [&] { two(x); });
  const auto pair = define_operation(
      "pair", "*", same, {.backward = [](const at::Tensor& g, const at::Tensor&) { return std::pair(g, g); }});
  expect_error(ErrorKind::invalid_argument, "[pair] .backward returned 2 tensors, expected 1", [&] { step_of(pair); });
  const auto flat = define_operation("flat", "*", same,
                                     {.backward = [](const at::Tensor& g, const at::Tensor&) { return g.flatten(); }});
  expect_error(ErrorKind::shape_mismatch,
               "[flat] .backward returned (8) for operand 0, expected its local shape (4, 2)", [&] { step_of(flat); });
  const auto unread = define_operation("unread", "*", [](const at::Tensor& t) { return std::tuple(t, t); });
  expect_error(ErrorKind::invalid_argument, "[unread] the function returned 2 tensors, expected the result",
               [&] { unread(x); });

  const auto none = define_operation("none", "*", [](const at::Tensor&) { return std::vector<at::Tensor>(); },
                                     {.backward = [](const at::Tensor& g, const at::Tensor&) { return g; }});
  expect_error(ErrorKind::invalid_argument, "[none] the function returned 0 tensors, expected the result",
               [&] { none(x); });
  const auto doubled = define_operation("doubled", "*", [](const at::Tensor& t) { return t.mul_(2); });
  expect_error(ErrorKind::invalid_argument, "[doubled] the function changed an argument in place",
               [&] { doubled(x + 0.0); });
  const auto tripled = define_operation("tripled", "*", same,
                                        {.backward = [](const at::Tensor& g, const at::Tensor&) { return g.mul_(3); }});
  expect_error(ErrorKind::invalid_argument, "[tripled] .backward changed an argument in place",
               [&] { step({x}, [&](Arrays p) { return sum(tripled(p[0]) * x); }); });
  const auto failing = define_operation("failing", "*", same,
                                        {.backward = [](const at::Tensor& g, const at::Tensor& t) { return g.mm(t); }});
  expect_error(ErrorKind::invalid_argument, {"[failing] .backward: ", "mat1 and mat2 shapes"},
               [&] { step_of(failing); });
  const auto sparse = define_operation(
      "sparse", "*", same, {.backward = [](const at::Tensor& g, const at::Tensor&) { return g.to_sparse(); }});
  expect_error(ErrorKind::dtype_mismatch, "[sparse] .backward returned a sparse", [&] { step_of(sparse); });

  const auto forward = [](const Array& a) { return std::pair(a, nullptr); };
  const auto identity = [](const Array& a) { return a; };
  const auto many = custom_gradient(identity, forward, [](auto, const Array& g) { return std::pair(g, g); });
  expect_error(ErrorKind::invalid_argument, "[custom_gradient] `backward` returned 2 arrays, expected 1",
               [&] { step_of(many); });
  const auto summed = custom_gradient(identity, forward, [](auto, const Array& g) { return sum(g); });
  expect_error(ErrorKind::shape_mismatch, "`backward` returned float64[] for argument 0, expected float64[4,2]",
               [&] { step_of(summed); });
  const auto narrow =
      custom_gradient(identity, forward, [](auto, const Array& g) { return astype(g, DType::float32); });
  expect_error(ErrorKind::dtype_mismatch, "`backward` returned float32[4,2]", [&] { step_of(narrow); });
  const Array a = placed(random_tensor({4, 2}, 1), make_mesh({{"x", 2}}), P{"x"});
  const auto elsewhere = custom_gradient(identity, forward, [&](auto, const Array& g) { return g * a; });
  expect_error(ErrorKind::device_mismatch, "[custom_gradient]", [&] { step_of(elsewhere); });
  expect_error(ErrorKind::missing_array, "[custom_gradient]", [&] { many(Array()); });
}

}  // namespace
}  // namespace tessera::testing::custom_gradient_test
