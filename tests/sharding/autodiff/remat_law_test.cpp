// remat under the law: for any sharding, values and gradients equal plain LibTorch's without remat.
#include "sharding/autodiff/remat.h"
#include "tests/sharding/expressions.h"
#include "tests/sharding/law.h"

namespace tessera::remat_law_test {
namespace {

using namespace tessera::testing;
using List = std::vector<Array>;
using Arrays = const List&;
using Values = const std::vector<at::Tensor>&;

List block(Arrays x) { return {x[0] + matmul(tanh(matmul(x[0], x[1])), x[2])}; }
List product(Arrays x) { return {matmul(x[0], x[1])}; }

at::Tensor block_of(const at::Tensor& x, const at::Tensor& w, const at::Tensor& v) {
  return x + at::matmul(at::tanh(at::matmul(x, w)), v);
}

std::vector<Function> functions() {
  const at::Tensor x = random_tensor({12, 6}, 1), w = random_tensor({6, 6}, 2), v = random_tensor({6, 6}, 3);
  const at::Tensor row = random_tensor({6}, 4), ids = random_integers({12}, 6, 5);
  return {
      {"a block", {x, w, v}, OURS(remat(block, x)[0]), THEIRS(block_of(x[0], x[1], x[2]))},
      {"two blocks of the same weights",
       {x, w, v},
       OURS(remat(block, {remat(block, x)[0], x[1], x[2]})[0]),
       THEIRS(block_of(block_of(x[0], x[1], x[2]), x[1], x[2]))},
      {"a weight used inside and outside",
       {x, w, v},
       OURS(matmul(remat(block, x)[0] * sum(x[2]), x[1]) + matmul(x[0], x[1])),
       THEIRS(at::matmul(block_of(x[0], x[1], x[2]) * x[2].sum(), x[1]) + at::matmul(x[0], x[1]))},
      {"remat in remat",
       {x, w, v},
       [](Arrays a) {
         const auto twice = [](Arrays b) -> List { return remat(block, {remat(block, b)[0], b[2], b[1]}); };
         return remat(twice, a)[0];
       },
       THEIRS(block_of(block_of(x[0], x[1], x[2]), x[2], x[1]))},
      {"a scaled, a transposed and a sliced weight",
       {x, w, v},
       [](Arrays a) {
         const Array slices = slice_in_dim(a[2], 0, 3, 1);
         return remat(block, {a[0], 0.5 * transpose(a[1]), a[2]})[0] + sum(remat(product, {a[0], slices})[0]) +
                remat([](Arrays b) -> List { return {sum(b[0])}; }, {slices})[0];
       },
       [](Values a) {
         const at::Tensor slices = a[2].narrow(1, 0, 3);
         return block_of(a[0], 0.5 * a[1].t(), a[2]) + at::matmul(a[0], slices).sum() + slices.sum();
       }},
      {"casts",
       {x, w, v},
       [](Arrays a) {
         const auto half = [](const Array& b) { return astype(b, float32); };
         return astype(remat(block, {half(a[0]), half(a[1]), transpose(half(a[2]))})[0], float64) +
                a[1].shape(0) * a[0];
       },
       [](Values a) {
         const auto half = [](const at::Tensor& b) { return b.to(at::kFloat); };
         return block_of(half(a[0]), half(a[1]), half(a[2]).t()).to(at::kDouble) + 6 * a[0];
       },
       1e-5},
      {"of weights alone",
       {x, w, v},
       [](Arrays a) {
         return matmul(a[0], remat([](Arrays b) -> List { return {matmul(b[0], tanh(b[1]))}; }, {a[1], a[2]})[0]) +
                a[0];
       },
       THEIRS(at::matmul(x[0], at::matmul(x[1], x[2].tanh())) + x[0])},
      {"several results, some of them arguments",
       {x, w, v},
       [](Arrays a) {
         const List r = remat([](Arrays b) -> List { return {tanh(b[0]), b[1], b[0], matmul(b[0], b[2]), b[1]}; }, a);
         return matmul(r[0] + r[2] * r[3], r[1]) + sum(r[4] * r[1]);
       },
       THEIRS(at::matmul(x[0].tanh() + x[0] * at::matmul(x[0], x[2]), x[1]) + (x[1] * x[1]).sum())},
      {"a result that nothing uses",
       {x, w, v},
       [](Arrays a) {
         const List r = remat([](Arrays b) -> List { return {matmul(b[0], b[1]), matmul(b[0], b[2])}; }, a);
         return r[0] + sum(a[2]);
       },
       THEIRS(at::matmul(x[0], x[1]) + x[2].sum())},
      {"an argument given twice",
       {x, w},
       OURS(remat(block, {x[0], x[1], x[1]})[0]),
       THEIRS(block_of(x[0], x[1], x[1]))},
      {"integers",
       {x, w, ids},
       [](Arrays a) {
         const List r = remat([](Arrays b) -> List { return {b[2], embedding(b[1], b[2]) * b[0]}; }, a);
         return r[1] + embedding(a[1], r[0]);
       },
       [](Values a) {
         const at::Tensor rows = at::embedding(a[1], a[2].to(at::kLong));
         return rows * a[0] + rows;
       }},
      {"norms and a head",
       {x, row, w},
       [](Arrays a) {
         const List r = remat([](Arrays b) -> List { return {rms_norm(b[0], b[1]), sum(square(b[2]))}; }, a);
         return matmul(r[0], transpose(a[2])) * r[1];
       },
       [](Values a) {
         const at::Tensor h = a[0] * at::rsqrt((a[0] * a[0]).mean(-1, true) + 1e-5) * a[1];
         return at::matmul(h, a[2].t()) * a[2].square().sum();
       }},
  };
}

TEST(RematLaw, AnyPlacementGivesTheValueOfWholeTensors) {
  int cases = 0;
  for (const Function& f : functions())
    for (const std::vector<MeshAxis>& axes : {std::vector<MeshAxis>{{"a", 2}, {"b", 2}}, {{"a", 2}, {"b", 3}}})
      cases += expect_law(f, axes, 60);
  for (const Function& f : functions())
    cases += expect_law(f, {{"a", 2}, {"b", 2}}, 30, /*with_reduced=*/true, {.reshard_after_forward = false});
  std::cout << cases << " cases\n";
}

}  // namespace
}  // namespace tessera::remat_law_test
