// GradientOptions: gradients that stay partial sums, and the element type of their reduction.
#include "sharding/array/autograd.h"
#include "sharding/base/environment.h"
#include "sharding/shard_map/shard_map.h"
#include "tests/sharding/allocations.h"
#include "tests/sharding/expect_error.h"
#include "tests/sharding/step.h"

namespace tessera::gradient_options_test {
namespace {

using namespace tessera::testing;
using Arrays = const std::vector<Array>&;

// A product, weight decay, a bias that is used twice, and an unused parameter.
Array loss_of(const Array& x, Arrays w) {
  return mean(square(tanh(matmul(x, w[0]) + w[1]) * w[1])) + 0.1 * sum(square(w[0]));
}

TEST(PartialGradients, AreTheGradientsOnceTheyAreReduced) {
  int cases = 0;
  for (const std::vector<MeshAxis>& axes : {std::vector<MeshAxis>{{"a", 2}, {"b", 2}}, {{"a", 3}, {"b", 2}}})
    for (const Mesh mesh : shared_and_private(axes)) {
      for (const PartitionSpec& data : placements(mesh, {12, 6}))
        for (const PartitionSpec& weight : placements(mesh, {6, 6})) {
          if (!data.unreduced_axes().empty() || !weight.unreduced_axes().empty()) continue;
          SCOPED_TRACE(data.to_string() + " " + weight.to_string() +
                       (mesh.private_replicas() ? ", private" : ", shared"));
          const Array x = placed(random_tensor({12, 6}, 1), mesh, data);
          const std::vector<Array> w{placed(random_tensor({6, 6}, 2), mesh, weight),
                                     placed(random_tensor({6}, 3), mesh, P{weight.entries().back()}),
                                     placed(random_tensor({6}, 4), mesh, {}), from_tensor(random_tensor({6, 6}, 5))};
          const auto model = [&](Arrays p) { return loss_of(x, p) + sum(matmul(x, p[3])); };
          const Step reduced = step(w, model), pending = step(w, model, {.reduce = false});
          EXPECT_LE(difference(pending, reduced), 1e-14);
          for (size_t i = 0; i < 3; ++i) {
            const NamedSharding home = reduced.gradients[i].sharding();
            const PartitionSpec spec = pending.gradients[i].sharding().spec();
            EXPECT_EQ(without_sets(spec), without_sets(home.spec())) << i;
            const Array moved = redistribute(pending.gradients[i], home);
            EXPECT_LE(difference(to_tensor(moved), to_tensor(reduced.gradients[i])), 1e-14) << i;
          }
          EXPECT_EQ(pending.gradients[2].type_string(), "float64[6]");
          ++cases;
        }
    }
  std::cout << cases << " cases\n";
}

TEST(PartialGradients, CommunicateNothing) {
  for (const Mesh mesh : shared_and_private({{"data", 4}})) {
    const Array x = placed(random_tensor({8, 8}, 1), mesh, P{"data"});
    const std::vector<Array> w{placed(random_tensor({8, 8}, 2), mesh, {}), placed(random_tensor({8}, 3), mesh, {})};
    const Step got = step(w, [&](Arrays p) { return loss_of(x, p); }, {.reduce = false});
    EXPECT_EQ(got.communication, "all_reduce data 8");
    for (const Array& g : got.gradients) EXPECT_EQ(g.sharding().spec(), P{}.unreduced({"data"}));
  }
}

// As ZeRO-1's state, gradients are sharded along the first dimension that the axes divide. Gradients without such a
// dimension have the sharding of their parameters.
TEST(CutGradients, AreTheGradientsInParts) {
  for (const Mesh mesh : shared_and_private({{"data", 4}, {"model", 2}})) {
    const Array x = placed(random_tensor({8, 8}, 1), mesh, P{"data"});
    const std::vector<Array> w{placed(random_tensor({8, 8}, 2), mesh, P{none, "model"}),
                               placed(random_tensor({8}, 3), mesh, {}), placed(random_tensor({3}, 4), mesh, {}),
                               placed(random_tensor({4}, 5), mesh, {}), from_tensor(random_tensor({8, 8}, 6))};
    const auto model = [&](Arrays p) { return loss_of(x, p) + sum(p[2]) + sum(matmul(x, p[4])); };
    const Step whole_gradients = step(w, model), cut = step(w, model, {.shard_gradients_over = {"data"}});
    EXPECT_LE(difference(cut, whole_gradients), 1e-14);
    EXPECT_EQ(cut.gradients[0].type_string(), "float64[8@data,8@model]");
    EXPECT_EQ(cut.gradients[1].type_string(), "float64[8@data]");
    EXPECT_EQ(cut.gradients[2].type_string(), "float64[3]");
    EXPECT_EQ(cut.gradients[3].type_string(), "float64[4@data]") << "not used, so of zeros";
    EXPECT_EQ(cut.gradients[4].type_string(), whole_gradients.gradients[4].type_string()) << "never placed";
    EXPECT_NE(cut.communication.find("<reduce_scatter data 80"), std::string::npos) << cut.communication;
  }
}

TEST(CutGradients, NameTheAxesThatThereAre) {
  const Mesh mesh = make_mesh({{"data", 4}});
  const std::vector<Array> w{placed(random_tensor({8}, 3), mesh, {})};
  expect_error(ErrorKind::unknown_axis, "[value_and_grad] shard_gradients_over: \"batch\" given, expected an axis of the mesh (data=4",
               [&] { Tape(w, {.shard_gradients_over = {"batch"}}); });
  expect_error(ErrorKind::invalid_argument, "[value_and_grad] shard_gradients_over: \"data\" given twice",
               [&] { Tape(w, {.shard_gradients_over = {"data", "data"}}); });
}

// Devices with shared replicas have already added their contributions.
TEST(PartialGradients, TakeTheMemoryOfOneIfReplicasAreShared) {
  constexpr int64_t n = 128, bytes = n * n * 8;
  const Mesh mesh = make_mesh({{"data", 8}});
  const Array x = placed(random_tensor({8, n}, 1), mesh, P{"data"});
  const std::vector<Array> w{placed(random_tensor({n, n}, 2), mesh, {})};
  const Allocations memory;
  const Step got = step(w, [&](Arrays p) { return mean(matmul(x, p[0])); }, {.reduce = false});
  EXPECT_LE(memory.live(), bytes + bytes / 4);
  EXPECT_EQ(got.gradients[0].type_string(), "float64[128,128]{U:data}");
}

TEST(Reduction, IsInTheChosenType) {
  for (const Mesh mesh : shared_and_private({{"data", 4}})) {
    const Array x = placed(random_tensor({8, 8}, 1), mesh, P{"data"});
    const std::vector<Array> w{placed(random_tensor({8, 8}, 2), mesh, {}), placed(random_tensor({8}, 3), mesh, {})};
    const auto model = [&](Arrays p) { return loss_of(x, p); };
    const Step exact = step(w, model), rounded = step(w, model, {.reduce_dtype = float32});
    EXPECT_EQ(exact.communication, "<all_reduce data 576; all_reduce data 8");
    EXPECT_EQ(rounded.communication, "<all_reduce data 288; all_reduce data 8");
    for (size_t i = 0; i < w.size(); ++i)
      EXPECT_EQ(rounded.gradients[i].type_string(), exact.gradients[i].type_string());
    EXPECT_LE(difference(rounded, exact), 1e-6);
    EXPECT_GT(difference(rounded, exact), 0);
  }
}

// ---- second derivatives

using Loss = std::function<Array(const Array&)>;

// The derivative of sum(u * d loss / dx) with respect to x.
at::Tensor second_derivative(const Loss& loss, const Array& x, const at::Tensor& u) {
  Tape outer({x});
  Array gradient;
  {
    Tape inner(outer.shadows(), {.differentiable = true});
    gradient = inner.gradients(loss(inner.shadows()[0]))[0];
  }
  return to_tensor(outer.gradients(sum(gradient * from_tensor(u)))[0]);
}

// The same by central differences of gradients.
at::Tensor difference_quotient(const Loss& loss, const at::Tensor& x, const at::Tensor& u) {
  constexpr double h = 1e-5;
  const auto at_step = [&](double step) {
    return to_tensor(
        tessera::testing::step({from_tensor(x + step * u)}, [&](Arrays p) { return loss(p[0]); }).gradients[0]);
  };
  return (at_step(h) - at_step(-h)) / (2 * h);
}

// Each function is one term of a loss, next to one with a second derivative of its own. A lost term is therefore no
// error by itself.
const std::vector<std::pair<const char*, std::function<Array(const Array&)>>>& twice_differentiated() {
  using A = const Array&;
  static const Array kernel = from_tensor(random_tensor({1, 1, 3, 3}, 5)), scale = from_tensor(random_tensor({8}, 6)),
                     bias = from_tensor(random_tensor({8}, 7)), labels = array<int32_t>({1, 7, 0, 4});
  static const std::vector<std::pair<const char*, std::function<Array(const Array&)>>> table{
      {"roll", [](A x) { return roll(x, 1, 0); }},
      {"flip", [](A x) { return flip(x); }},
      {"pad", [](A x) { return pad(x, {{1, 1}, {2, 0}}, 2.5); }},
      {"concatenate", [](A x) { return concatenate({x, 2.0 * x, x}, 0) * concatenate({x, x, flip(x, {1})}, 0); }},
      {"tile", [](A x) { return tile(x, {2, 3}); }},
      {"index", [](A x) { return x.index({range(1, 4), range({}, {}, -3)}); }},
      {"dynamic_update_slice",
       [](A x) { return dynamic_update_slice(x, x.index({range(0, 2), range(1, 4)}), {1, 3}); }},
      {"reshape", [](A x) { return square(reshape(x, {8, 4})); }},
      {"ravel", [](A x) { return square(ravel(x)); }},
      {"avg_pool", [](A x) { return avg_pool(reshape(x, {1, 4, 8, 1}), {3, 3}, {1, 1}, "SAME"); }},
      {"conv", [](A x) { return conv_general_dilated(reshape(x, {1, 1, 4, 8}), kernel, {1, 1}, "SAME"); }},
      {"var", [](A x) { return var(x, {0}); }},
      {"var of all", [](A x) { return var(x); }},
      {"std", [](A x) { return tessera::std(x, {1}); }},
      {"norm", [](A x) { return norm(x) + norm(x, {1}); }},
      {"logsumexp", [](A x) { return logsumexp(x, {0}); }},
      {"logsumexp of all", [](A x) { return logsumexp(2.0 * x); }},
      {"prod", [](A x) { return prod(x, {1}); }},
      {"max", [](A x) { return max(x, {0}) * min(x, {0}); }},
      {"softmax", [](A x) { return softmax(x, 0) * softmax(x, 1); }},
      {"log_softmax", [](A x) { return log_softmax(x, 0) * log_softmax(x, 1); }},
      {"layer_norm", [](A x) { return layer_norm(x); }},
      {"scaled layer_norm", [](A x) { return layer_norm(x, scale * x.index({0}), bias); }},
      {"rms_norm", [](A x) { return rms_norm(x); }},
      {"scaled rms_norm", [](A x) { return rms_norm(x, scale * x.index({0})); }},
      {"cross_entropy", [](A x) { return cross_entropy(x, labels); }},
      {"cross_entropy with all options",
       [](A x) {
         return cross_entropy_per_position(x, labels, {.ignore_label = 7, .label_smoothing = 0.1, .z_loss = 0.2});
       }},
      {"linear_cross_entropy",
       [](A x) {
         return linear_cross_entropy(x, concatenate({x, 2.0 * x}), labels,
                                     {.ignore_label = 7, .transposed = true, .logit_softcap = 3.0});
       }},
      {"logaddexp", [](A x) { return logaddexp(x, x.index({0})); }},
      {"cumsum", [](A x) { return cumsum(x, 0) * cumsum(x, 1); }},
      {"sort", [](A x) { return sort(x, 0) * sort(x, 1); }},
      {"abs", [](A x) { return abs(x) * leaky_relu(x, 0.1); }},
      {"matmul", [](A x) { return matmul(x, transpose(x)); }},
      {"attention",
       [](A x) {
         return dot_product_attention(reshape(x, {1, 4, 2, 4}), reshape(x, {1, 4, 2, 4}), reshape(x, {1, 4, 2, 4}),
                                      {.causal = true});
       }},
      {"attention to groups", [](A x) {
         return dot_product_attention(reshape(x, {1, 4, 2, 4}), reshape(x, {1, 8, 1, 4}), reshape(x, {1, 8, 1, 4}),
                                      {.bias = bias});
       }}};
  return table;
}

TEST(SecondDerivatives, AreWhatTheyAreWithoutAMeshOnEveryPlacement) {
  const at::Tensor x = random_tensor({4, 8}, 1), u = random_tensor({4, 8}, 2);
  for (const auto& [name, f] : twice_differentiated()) {
    SCOPED_TRACE(name);
    const Loss loss = [f = f](const Array& a) { return sum(a * a * a) + sum(square(f(a))); };
    const at::Tensor expected = second_derivative(loss, from_tensor(x), u);
    EXPECT_LE(difference(expected, difference_quotient(loss, x, u)), 1e-5 * (1 + expected.abs().max().item<double>()));
    for (const Mesh mesh : shared_and_private({{"a", 2}, {"b", 2}})) {
      for (const PartitionSpec& spec : {P{}, P{"a"}, P{none, "b"}, P{"a", "b"}, P{none, {"a", "b"}}})
        EXPECT_LE(difference(second_derivative(loss, placed(x, mesh, spec), u), expected),
                  1e-11 * (1 + expected.abs().max().item<double>()))
            << spec.to_string() << (mesh.private_replicas() ? " private" : "");
    }
  }
}

// Four rows and eight columns over axes that divide neither. One of three devices has no row.
const PartitionSpec padded_specs[] = {P{{"a", Uneven::pad}}, P{none, {"b", Uneven::pad}},
                                      P{{"a", Uneven::pad}, {"b", Uneven::pad}}, P{none, {{"a", "b"}, Uneven::pad}}};

TEST(SecondDerivatives, AreTheSameWhereDimsArePadded) {
  const detail::CheckScope padding_is_zeros;
  const at::Tensor x = random_tensor({4, 8}, 1), u = random_tensor({4, 8}, 2);
  for (const auto& [name, f] : twice_differentiated()) {
    SCOPED_TRACE(name);
    const Loss loss = [f = f](const Array& a) { return sum(a * a * a) + sum(square(f(a))); };
    const at::Tensor expected = second_derivative(loss, from_tensor(x), u);
    for (const bool private_replicas : {false, true}) {
      const Mesh mesh = make_mesh({{"a", 3}, {"b", 3}}, {.private_replicas = private_replicas});
      for (const PartitionSpec& spec : padded_specs)
        EXPECT_LE(difference(second_derivative(loss, placed(x, mesh, spec), u), expected),
                  1e-11 * (1 + expected.abs().max().item<double>()))
            << spec.to_string() << (private_replicas ? " private" : "");
    }
  }
}

// All columns of the Hessian of a classifier's loss, with padded classes and with padded features.
TEST(SecondDerivatives, MakeTheHessianWhereDimsArePadded) {
  const detail::CheckScope padding_is_zeros;
  const at::Tensor w = random_tensor({5, 7}, 1), x = random_tensor({6, 5}, 2);
  const Array labels = array<int32_t>({0, 6, 3, 3, 1, 5});
  const auto hessian = [&](const Array& at_w, const Array& features) {
    const Loss loss = [&](const Array& a) {
      return cross_entropy(matmul(gelu(layer_norm(features)), a), labels) + 0.1 * max(softmax(a, 0)) * norm(a);
    };
    std::vector<at::Tensor> columns;
    for (int64_t i = 0; i < w.numel(); ++i) {
      at::Tensor u = at::zeros({w.numel()}, at::kDouble);
      u[i] = 1;
      columns.push_back(second_derivative(loss, at_w, u.view({5, 7})).view({-1}));
    }
    return at::stack(columns);
  };
  const at::Tensor expected = hessian(from_tensor(w), from_tensor(x));
  EXPECT_LE(difference(expected, expected.t()), 1e-12);
  const Mesh mesh = make_mesh({{"a", 3}, {"b", 2}});
  for (const auto& [of_w, of_x] : {std::pair(P{none, {"a", Uneven::pad}}, P{{"b", Uneven::pad}}),
                                   std::pair(P{{"b", Uneven::pad}, {"a", Uneven::pad}}, P{none, {"b", Uneven::pad}}),
                                   std::pair(P{{"a", Uneven::pad}}, P{none, {"a", Uneven::pad}})})
    EXPECT_LE(difference(hessian(placed(w, mesh, of_w), placed(x, mesh, of_x)), expected), 1e-12)
        << of_w.to_string() << " and " << of_x.to_string();
}

TEST(SecondDerivatives, GatherADimThatTwoOperandsCutByDifferentAxes) {
  const at::Tensor x = random_tensor({4, 8}, 1), u = random_tensor({4, 8}, 2), s = random_tensor({8}, 3);
  const auto norms = [](const Array& scale) -> Loss {
    return
        [scale](const Array& a) { return sum(square(rms_norm(a, scale))) + sum(square(layer_norm(a, scale, scale))); };
  };
  const at::Tensor expected = second_derivative(norms(from_tensor(s)), from_tensor(x), u);
  for (const Mesh mesh : shared_and_private({{"a", 2}, {"b", 2}, {"c", 2}})) {
    const Loss loss = norms(placed(s, mesh, P{"b"}));
    for (const PartitionSpec& spec : {P{none, "a"}, P{"c", "a"}})
      EXPECT_LE(difference(second_derivative(loss, placed(x, mesh, spec), u), expected),
                1e-11 * (1 + expected.abs().max().item<double>()))
          << spec.to_string() << (mesh.private_replicas() ? " private" : "");
  }
}

TEST(SecondDerivatives, PassBetweenMeshesAndThroughExtremaOfDevices) {
  const at::Tensor x = random_tensor({4, 8}, 1), u = random_tensor({4, 8}, 2);
  for (const bool private_replicas : {false, true}) {
    const Mesh mesh = make_mesh({{"a", 4}}, {.private_replicas = private_replicas});
    const Mesh turned =
        make_mesh({{"p", 2}, {"q", 2}}, {.devices = {3, 1, 0, 2}, .private_replicas = private_replicas});
    const auto largest = [](const Array& a) { return pmax(a, "a"); };
    const Loss extremum = [&](const Array& a) {
      return sum(a * a * a) + sum(square(shard_map(largest, mesh, P{"a"}, P{})(a)));
    };
    const Loss first = [&](const Array& a) {
      const auto sums = [](const Array& b) { return pvary(psum(b, "a"), "a"); };
      return sum(a * a * a) + sum(square(shard_map(sums, mesh, P{"a"}, P{}, {.check_vma = false})(a)));
    };
    const Array at = placed(x, mesh, P{"a"});
    const at::Tensor cubes = 6 * x * u, most = x.eq(x.amax(0, true)).to(at::kDouble);
    EXPECT_LE(difference(second_derivative(extremum, at, u), cubes + 2 * most * u), 1e-12);
    EXPECT_LE(difference(second_derivative(first, at, u), cubes + 2 * u.sum(0, true)), 1e-12);
    const Loss cubed = [&](const Array& a) {
      const Array there = device_put(a, NamedSharding(turned, P{"p", "q"}));
      return sum(there * there * there);
    };
    EXPECT_LE(difference(second_derivative(cubed, at, u), cubes), 1e-12);
  }
}

// A hand-written gradient that cannot be differentiated is refused only where the second derivative needs it.
TEST(SecondDerivatives, AreRefusedWhereThereAreNone) {
  const auto cube = [](const Array& a) {
    detail::Tensors out{to_tensor(tessera::detail::finalize_result(a)).pow(3)};
    detail::record_function("cube", a.impl()->local, out, [x = a.impl()->local[0].detach()](const detail::Tensors& g) {
      return detail::Tensors{3 * x * x * g[0]};
    });
    return from_tensor(out[0]);
  };
  const Array x = ones({3});
  const at::Tensor u = at::ones({3});
  const Loss with_it = [&](const Array& a) { return sum(a * a * a) + sum(cube(2.0 * a)); };
  expect_error(ErrorKind::no_gradient, "[cube] is differentiated a second time",
               [&] { second_derivative(with_it, x, u); });
  Tape outer({x});
  Array gradient;
  {
    Tape inner({ones({3})}, {.differentiable = true});  // the outer tape has no gradient through the cube
    gradient = inner.gradients(sum(cube(2.0 * inner.shadows()[0])))[0];
  }
  EXPECT_EQ(outer.gradients(sum(gradient * outer.shadows()[0]))[0].to_host<float>(), (std::vector<float>(3, 24)));
}

}  // namespace
}  // namespace tessera::gradient_options_test
