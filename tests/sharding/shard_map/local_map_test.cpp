// local_map: LibTorch code on blocks, its gradients, and its errors.
#include "sharding/shard_map/local_map.h"

#include "sharding/accounting/finite_check.h"
#include "tests/sharding/expect_error.h"
#include "tests/sharding/step.h"

namespace tessera::local_map_test {
namespace {

using namespace tessera::testing;
using Arrays = const std::vector<Array>&;
using Tensors = std::vector<at::Tensor>;

// The batch's rows are sharded over x, the weight's columns over y.
TEST(LocalMap, ValuesAndGradientsAreLibTorchs) {
  for (const Mesh mesh : shared_and_private({{"x", 2}, {"y", 4}})) {
    const at::Tensor x = random_tensor({4, 6}, 1), w = random_tensor({6, 8}, 2), b = random_tensor({6}, 3);
    int calls = 0;
    const auto layer = local_map(
        [&](const Tensors& t) {
          ++calls;
          EXPECT_EQ(t[0].sizes(), (at::IntArrayRef{2, 6}));
          EXPECT_EQ(t[1].sizes(), (at::IntArrayRef{6, 2}));
          return at::matmul(at::softmax(t[0] + t[2], -1), t[1]);
        },
        mesh, {P{"x"}, P{none, "y"}, P{}}, P{"x", "y"});
    const auto got = step({placed(x, mesh, P{"x"}), placed(w, mesh, {}), placed(b, mesh, {})},
                          [&](Arrays p) { return sum(square(layer(p[0], p[1], p[2]))); });
    EXPECT_EQ(calls, 8);
    const auto expected = step({from_tensor(x), from_tensor(w), from_tensor(b)},
                               [](Arrays p) { return sum(square(matmul(softmax(p[0] + p[2]), p[1]))); });
    EXPECT_LE(difference(got.loss, expected.loss), 1e-14);
    for (int i = 0; i < 3; ++i)
      EXPECT_LE(difference(to_tensor(got.gradients[i]), to_tensor(expected.gradients[i])), 1e-13) << i;
  }
}

TEST(LocalMap, SeveralResultsAndTermsOfASum) {
  const Mesh mesh = make_mesh({{"x", 4}});
  const Array x = from_tensor(random_tensor({8, 3}, 1));
  const auto f = local_map(
      [](const Tensors& t) {
        return Tensors{t[0].sum(0), t[0].argmax(1)};
      },
      mesh, P{"x"}, {P{}.unreduced({"x"}), P{"x"}});
  const std::vector<Array> y = f(x);
  EXPECT_EQ(y[0].type_string(), "float64[3]{U:x}");
  EXPECT_EQ(y[1].type_string(), "int64[8@x]");
  EXPECT_LE(difference(to_tensor(y[0]), to_tensor(x).sum(0)), 1e-14);
  EXPECT_TRUE(at::equal(to_tensor(y[1]), to_tensor(x).argmax(1)));
}

TEST(LocalMap, RefusesWhatDevicesDoNotAgreeOn) {
  const Mesh mesh = make_mesh({{"x", 2}});
  const Array x = array<float>({1, 2, 3, 4});
  const auto run = [&](const auto& f, const PartitionSpec& out) { return local_map(f, mesh, P{"x"}, out)(x); };
  const auto sum_of = [](const Tensors& t) { return t[0].sum(); };
  expect_error(ErrorKind::varying_axis, "result 0, float32[]{V:x}", [&] { run(sum_of, {}); });
  const auto ragged = [](const Tensors& t) { return t[0].narrow(0, 0, t[0][0].item<float>() > 2 ? 1 : 2); };
  expect_error(ErrorKind::shape_mismatch, "given float32[2]{V:x}", [&] { run(ragged, P{"x"}); });
  const auto wrong = [](const Tensors& t) { return at::matmul(t[0], at::ones({7})); };
  expect_error(ErrorKind::invalid_argument, "given float32[2]{V:x}: ", [&] { run(wrong, P{"x"}); });
}

TEST(LocalMap, RefusesTensorsThatNoArrayHas) {
  const Mesh mesh = make_mesh({{"x", 2}});
  const std::vector<std::pair<const char*, std::function<at::Tensor(const at::Tensor&)>>> table{
      {"returns an undefined tensor", [](const at::Tensor&) { return at::Tensor(); }},
      {"returns a tensor of ComplexFloat", [](const at::Tensor& t) { return t.to(at::kComplexFloat); }},
      {"returns a tensor of UInt16", [](const at::Tensor& t) { return t.to(at::kUInt16); }},
      {"returns a sparse tensor", [](const at::Tensor& t) { return t.to_sparse(); }}};
  for (const auto& [words, f] : table)
    expect_error(ErrorKind::dtype_mismatch, words,
                 [&, f = f] { local_map([&](const Tensors& t) { return f(t[0]); }, mesh, P{"x"}, P{"x"})(ones({4})); });
}

TEST(LocalMap, IsAnOperationToFiniteChecks) {
  const Mesh mesh = make_mesh({{"x", 2}});
  const auto logs = local_map([](const Tensors& t) { return at::log(t[0]); }, mesh, P{"x"}, P{"x"});
  const auto roots = local_map([](const Tensors& t) { return at::sqrt(t[0]); }, mesh, P{"x"}, P{"x"});
  const Array x = placed(at::arange(3., -1., -1.), mesh, P{"x"});
  const DetectNonFinite scope;
  expect_error(ErrorKind::not_finite,
               {"[local_map] local_map_test.cpp:", "1 of 4 values is inf of the result", " on the device x=1; given "},
               [&] { logs(x); });
  expect_error(ErrorKind::not_finite, {"[local_map] local_map_test.cpp:", ", backward: 1 of 2 values is inf"},
               [&] { step({x}, [&](Arrays p) { return sum(roots(p[0])); }); });
}

TEST(LocalMap, FromTensorRefusesThemToo) {
  expect_error(ErrorKind::missing_array, "[from_tensor] an undefined tensor", [] { from_tensor(at::Tensor()); });
  expect_error(ErrorKind::missing_array, "[from_tensor] a tensor of the \"meta\" device",
               [] { from_tensor(at::ones({2}, at::kMeta)); });
  expect_error(ErrorKind::invalid_argument, "[from_tensor] a sparse tensor",
               [] { from_tensor(at::ones({2}).to_sparse()); });
  for (const auto type : {at::kComplexFloat, at::kUInt16, at::kFloat8_e4m3fn})
    expect_error(ErrorKind::dtype_mismatch, "[from_tensor] a tensor of ",
                 [=] { from_tensor(at::zeros({2}).to(type)); });
}

}  // namespace
}  // namespace tessera::local_map_test
