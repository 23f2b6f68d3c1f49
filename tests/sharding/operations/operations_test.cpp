// Every operation on a broad table of shardings: values and gradients equal those of plain LibTorch.
#include "sharding/operations.h"

#include "tests/sharding/expressions.h"
#include "tests/sharding/law.h"

namespace tessera::operations_test {
namespace {

using namespace tessera::testing;
using Arrays = const std::vector<Array>&;
using Values = const std::vector<at::Tensor>&;

at::Tensor normal_values(const Shape& shape, uint64_t seed = 1) { return random_tensor(shape, seed); }

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal, int64_t offset = 0) {
  const int64_t group = q.size(2) / k.size(2);
  const auto heads = [&](const at::Tensor& t, int64_t repeat) {
    return t.repeat_interleave(repeat, 2).transpose(1, 2);
  };
  at::Tensor scores = at::matmul(heads(q, 1), heads(k, group).transpose(-1, -2)) / std::sqrt(double(q.size(3)));
  if (causal) scores = scores.masked_fill(at::ones({q.size(1), k.size(1)}, at::kBool).triu(1 + offset), -INFINITY);
  return at::matmul(at::softmax(scores, -1), heads(v, group)).transpose(1, 2);
}

at::Tensor rotated(const at::Tensor& x, int64_t offset, double base) {
  const int64_t half = x.size(-1) / 2;
  const at::Tensor frequency = at::pow(base, -at::arange(half, at::kDouble) / half);
  const at::Tensor angle = (at::arange(x.size(1), at::kDouble) + offset).view({-1, 1, 1}) * frequency;
  const at::Tensor turned =
      at::complex(x.narrow(-1, 0, half), x.narrow(-1, half, half)) * at::polar(at::ones_like(angle), angle);
  return at::cat({at::real(turned), at::imag(turned)}, -1);
}

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& labels) {
  return at::cross_entropy_loss(logits.reshape({-1, logits.size(-1)}), labels.reshape({-1}).to(at::kLong));
}

at::Tensor rms(const at::Tensor& x, const at::Tensor& scale) {
  return x / at::sqrt((x * x).mean(-1, true) + 1e-5) * scale;
}

std::vector<Function> products() {
  return {
      {"matmul", {normal_values({12, 6}), normal_values({6, 12}, 2)}, BOTH(matmul(x[0], x[1])), 1e-12, true},
      {"matmul 3d x 2d", {normal_values({6, 2, 12}), normal_values({12, 6}, 2)}, BOTH(matmul(x[0], x[1])), 1e-12, true},
      {"matmul batched",
       {normal_values({6, 2, 12}), normal_values({6, 12, 6}, 2)},
       BOTH(matmul(x[0], x[1])),
       1e-12,
       true},
      {"matmul broadcast", {normal_values({6, 1, 2, 6}), normal_values({6, 6, 2}, 2)}, BOTH(matmul(x[0], x[1]))},
      {"vector x matrix", {normal_values({6}), normal_values({6, 12}, 2)}, BOTH(matmul(x[0], x[1])), 1e-12, true},
      {"matrix x vector", {normal_values({12, 6}), normal_values({6}, 2)}, BOTH(matmul(x[0], x[1])), 1e-12, true},
      {"dot", {normal_values({6}), normal_values({6}, 2)}, BOTH(matmul(x[0], x[1])), 1e-12, true},
      {"sum of products", {normal_values({6, 6}), normal_values({6, 6}, 2)}, BOTH(matmul(x[0], x[1]) + x[0])},
      {"product of products",
       {normal_values({6, 6}), normal_values({6, 6}, 2)},
       BOTH(matmul(x[0], x[1]) * matmul(x[1], x[0]) + matmul(x[0], x[1]))},
      {"chain",
       {normal_values({6, 6}), normal_values({6, 6}, 2)},
       BOTH(matmul(matmul(x[0], x[1]), matmul(x[0], x[1])))},
      {"x x^T", {normal_values({6, 12})}, OURS(matmul(x[0], transpose(x[0]))), THEIRS(at::matmul(x[0], x[0].t()))},
  };
}

std::vector<Function> elementwise() {
  const at::Tensor a = normal_values({12, 6}), b = normal_values({12, 6}, 2), row = normal_values({6}, 3);
  return {
      {"add", {a, b}, BOTH(x[0] + x[1]), 1e-12, true},
      {"sub", {a, b}, BOTH(x[0] - x[1]), 1e-12, true},
      {"mul", {a, b}, BOTH(x[0] * x[1]), 1e-12, true},
      {"div", {a, b}, BOTH(x[0] / (square(x[1]) + 1.0)), 1e-12, true},
      {"add a row", {a, row}, BOTH(x[0] + x[1]), 1e-12, true},
      {"mul a row", {row, a}, BOTH(x[0] * x[1]), 1e-12, true},
      {"outer", {normal_values({12, 1}), normal_values({1, 6}, 2)}, BOTH(x[0] * x[1])},
      {"mul a scalar array", {a, normal_values({}, 2)}, BOTH(x[0] * x[1]), 1e-12, true},
      {"x + x", {a}, BOTH(x[0] + x[0] * x[0])},
      {"scalars", {a}, BOTH((2.0 * x[0] + 1.0 - x[0] / 3.0) * (1.0 - x[0]) - (-x[0]) * 0.5 + (x[0] - 4.0))},
      {"exp", {a}, BOTH(exp(x[0]))},
      {"log", {a}, BOTH(log(square(x[0]) + 1.0))},
      {"sqrt", {a}, BOTH(sqrt(square(x[0]) + 1.0))},
      {"rsqrt", {a}, BOTH(rsqrt(square(x[0]) + 1.0))},
      {"tanh", {a}, BOTH(tanh(x[0]))},
      {"sigmoid", {a}, BOTH(sigmoid(x[0]))},
      {"relu", {a}, BOTH(relu(x[0]))},
      {"silu", {a}, BOTH(silu(x[0]))},
      {"gelu", {a}, OURS(gelu(x[0])), THEIRS(at::gelu(x[0], "tanh"))},
      {"exact gelu", {a}, OURS(gelu(x[0], false)), THEIRS(at::gelu(x[0]))},
      {"astype",
       {a, row},
       OURS(astype(astype(x[0], float32) * astype(x[1], float32), float64)),
       THEIRS((x[0].to(at::kFloat) * x[1].to(at::kFloat)).to(at::kDouble)),
       1e-6},
      {"promotion", {a, row}, OURS(astype(x[0], float32) * x[1]), THEIRS(x[0].to(at::kFloat) * x[1]), 1e-6},
      {"stop_gradient", {a, b}, OURS(x[0] * stop_gradient(x[1]) + x[1]), THEIRS(x[0] * x[1].detach() + x[1])},
  };
}

std::vector<Function> shapes() {
  const at::Tensor a = normal_values({12, 6}), cube = normal_values({6, 2, 12});
  const auto to = [](Shape shape) { return std::pair(OURS(reshape(x[0], shape)), THEIRS(x[0].reshape(shape))); };
  std::vector<Function> table;
  for (const auto& [name, input, shape] : std::vector<std::tuple<std::string, at::Tensor, Shape>>{
           {"split major", a, {2, 6, 6}},
           {"split", a, {6, 2, 6}},
           {"split the last", a, {12, 3, 2}},
           {"merge", cube, {12, 12}},
           {"merge the last", cube, {6, 24}},
           {"merge all", cube, {-1}},
           {"general", a, {8, 9}},
           {"ones", a, {1, 12, 1, 6}},
           {"no ones", normal_values({12, 1, 6}), {12, 6}},
           {"split and merge", normal_values({12, 6, 2}), {3, 4, 12}}}) {
    const auto [ours, theirs] = to(shape);
    table.push_back({"reshape: " + name, {input}, ours, theirs});
  }
  const std::vector<Function> more{
      {"transpose", {a}, OURS(transpose(x[0])), THEIRS(x[0].t()), 1e-12, true},
      {"transpose 3d", {cube}, OURS(transpose(x[0], {2, 0, 1})), THEIRS(x[0].permute({2, 0, 1})), 1e-12, true},
      {"swapaxes", {cube}, OURS(swapaxes(x[0], 0, -1)), THEIRS(x[0].transpose(0, 2)), 1e-12, true},
      {"slice", {a}, OURS(slice_in_dim(x[0], 2, 8, 0)), THEIRS(x[0].narrow(0, 2, 6))},
      {"slice of one", {a}, OURS(slice_in_dim(x[0], 5, 6, -1)), THEIRS(x[0].narrow(1, 5, 1))},
      {"concatenate",
       {a, normal_values({2, 6}, 2), normal_values({6, 6}, 3)},
       OURS(concatenate(x)),
       THEIRS(at::cat({x[0], x[1], x[2]}, 0))},
      {"concatenate the last",
       {cube, normal_values({6, 2, 1}, 2)},
       OURS(concatenate(x, -1)),
       THEIRS(at::cat({x[0], x[1]}, -1))},
      {"concatenate products",
       {a, normal_values({6, 12}, 2)},
       OURS(concatenate({matmul(x[0], x[1]), matmul(x[0], x[1])}, 1)),
       THEIRS(at::cat({at::matmul(x[0], x[1]), at::matmul(x[0], x[1])}, 1))},
      {"split heads",
       {cube, normal_values({12, 12}, 2)},
       OURS(transpose(reshape(matmul(x[0], x[1]), {6, 2, 6, 2}), {0, 2, 1, 3})),
       THEIRS(at::matmul(x[0], x[1]).reshape({6, 2, 6, 2}).transpose(1, 2))},
  };
  table.insert(table.end(), more.begin(), more.end());
  return table;
}

std::vector<Function> reductions() {
  const at::Tensor a = normal_values({12, 6, 2});
  std::vector<Function> table;
  for (const bool keepdims : {false, true})
    for (const Dims& dims : std::vector<Dims>{{}, {0}, {1}, {-1}, {0, 2}, {2, 1}}) {
      std::vector<int64_t> their_dims(dims.begin(), dims.end());
      const std::string how = fmt::format(" over ({}){}", fmt::join(dims, ","), keepdims ? " keepdims" : "");
      if (their_dims.empty()) their_dims = {0, 1, 2};
      table.push_back(
          {"sum" + how, {a}, OURS(sum(x[0], dims, keepdims)), THEIRS(x[0].sum(their_dims, keepdims)), 1e-12, true});
      table.push_back(
          {"mean" + how, {a}, OURS(mean(x[0], dims, keepdims)), THEIRS(x[0].mean(their_dims, keepdims)), 1e-12, true});
    }
  table.push_back({"sum of a product",
                   {normal_values({12, 6}), normal_values({6, 6}, 2)},
                   OURS(sum(square(matmul(x[0], x[1])), {1})),
                   THEIRS(at::matmul(x[0], x[1]).square().sum(1))});
  for (const int dim : {0, 1, -1})
    table.push_back(
        {fmt::format("softmax over {}", dim), {a}, OURS(softmax(x[0], dim)), THEIRS(at::softmax(x[0], dim))});
  return table;
}

std::vector<Function> networks() {
  const at::Tensor x3 = normal_values({6, 12, 6}), scale = normal_values({6}, 2), bias = normal_values({6}, 3);
  const at::Tensor table = normal_values({12, 6}, 4), ids = random_integers({6, 2}, 12, 5);
  const at::Tensor q = normal_values({6, 4, 12, 2}, 6), k = normal_values({6, 4, 12, 2}, 7),
                   v = normal_values({6, 4, 12, 2}, 8);
  const at::Tensor k6 = normal_values({6, 4, 6, 2}, 7), v6 = normal_values({6, 4, 6, 2}, 8);
  const at::Tensor k4 = normal_values({6, 6, 4, 2}, 7), v4 = normal_values({6, 6, 4, 2}, 8);
  const at::Tensor k2 = normal_values({6, 6, 2, 2}, 7), v2 = normal_values({6, 6, 2, 2}, 8);
  return {
      {"layer_norm",
       {x3, scale, bias},
       OURS(layer_norm(x[0], x[1], x[2])),
       THEIRS(at::layer_norm(x[0], {6}, x[1], x[2]))},
      {"rms_norm", {x3, scale}, OURS(rms_norm(x[0], x[1], 1e-5)), THEIRS(rms(x[0], x[1]))},
      {"embedding", {table, ids}, OURS(embedding(x[0], x[1])), THEIRS(at::embedding(x[0], x[1]))},
      {"embedding of bytes",
       {table, ids.to(at::kByte)},
       OURS(embedding(x[0], x[1])),
       THEIRS(at::embedding(x[0], x[1].to(at::kLong)))},
      {"attention",
       {q, k, v},
       OURS(dot_product_attention(x[0], x[1], x[2])),
       THEIRS(attention(x[0], x[1], x[2], false))},
      {"causal attention",
       {q, k, v},
       OURS(dot_product_attention(x[0], x[1], x[2], {.causal = true})),
       THEIRS(attention(x[0], x[1], x[2], true))},
      {"grouped attention",
       {q, k6, v6},
       OURS(dot_product_attention(x[0], x[1], x[2], {.causal = true})),
       THEIRS(attention(x[0], x[1], x[2], true))},
      {"grouped attention after a cache",
       {q, k4, v4},
       OURS(dot_product_attention(x[0], x[1], x[2], {.causal = true, .offset = 2})),
       THEIRS(attention(x[0], x[1], x[2], true, 2))},
      {"attention of one position",
       {normal_values({6, 1, 12, 2}, 6), k2, v2},
       OURS(dot_product_attention(x[0], x[1], x[2], {.causal = true, .offset = 5})),
       THEIRS(attention(x[0], x[1], x[2], false))},
      {"two kv heads",
       {q, k2, v2},
       OURS(dot_product_attention(x[0], x[1], x[2])),
       THEIRS(attention(x[0], x[1], x[2], false))},
      {"one kv head",
       {q, normal_values({6, 4, 1, 2}, 7), normal_values({6, 4, 1, 2}, 8)},
       OURS(dot_product_attention(x[0], x[1], x[2], {.causal = true})),
       THEIRS(attention(x[0], x[1], x[2], true))},
      {"rotary_embedding",
       {normal_values({2, 6, 6, 4})},
       OURS(rotary_embedding(x[0])),
       THEIRS(rotated(x[0], 0, 10000))},
      {"rotary_embedding further on",
       {normal_values({2, 6, 6, 4})},
       OURS(rotary_embedding(x[0], {.offset = 1000, .base = 500})),
       THEIRS(rotated(x[0], 1000, 500.0))},
      {"rotary_embedding of products",
       {normal_values({6, 12, 6}), normal_values({6, 12}, 2)},
       OURS(rotary_embedding(reshape(matmul(x[0], x[1]), {6, 12, 6, 2}))),
       THEIRS(rotated(at::matmul(x[0], x[1]).reshape({6, 12, 6, 2}), 0, 10000))},
      {"cross_entropy",
       {normal_values({6, 2, 12}), random_integers({6, 2}, 12, 3)},
       OURS(tessera::cross_entropy(x[0], x[1])),
       THEIRS(cross_entropy(x[0], x[1]))},
      {"cross_entropy of logits",
       {normal_values({6, 6}), normal_values({6, 12}, 2), random_integers({6}, 12, 3, at::kLong)},
       OURS(tessera::cross_entropy(matmul(x[0], x[1]), x[2])),
       THEIRS(cross_entropy(at::matmul(x[0], x[1]), x[2]))},
      {"tied head",
       {table, ids, random_integers({6, 2}, 12, 9)},
       OURS(tessera::cross_entropy(matmul(tanh(embedding(x[0], x[1])), transpose(x[0])), x[2])),
       THEIRS(cross_entropy(at::matmul(at::tanh(at::embedding(x[0], x[1])), x[0].t()), x[2]))},
      {"mlp",
       {x3, normal_values({6, 12}, 2), normal_values({12}, 3), normal_values({12, 6}, 4), bias},
       OURS(matmul(gelu(matmul(x[0], x[1]) + x[2]), x[3]) + x[4]),
       THEIRS(at::matmul(at::gelu(at::matmul(x[0], x[1]) + x[2], "tanh"), x[3]) + x[4])},
      {"normalized projections",
       {x3, scale, normal_values({6, 6}, 3), normal_values({6, 6}, 4)},
       [](Arrays x) {
         const Array h = rms_norm(x[0], x[1], 1e-5);
         return x[0] + matmul(h, x[2]) * matmul(h, x[3]);
       },
       [](Values x) {
         const at::Tensor h = rms(x[0], x[1]);
         return x[0] + at::matmul(h, x[2]) * at::matmul(h, x[3]);
       }},
  };
}

void expect_all(const std::vector<Function>& table, size_t sample, const GradientOptions& options = {}) {
  int cases = 0;
  for (const Function& f : table)
    for (const std::vector<MeshAxis>& axes : {std::vector<MeshAxis>{{"a", 2}, {"b", 2}}, {{"a", 2}, {"b", 3}}})
      cases += expect_law(f, axes, sample, /*with_reduced=*/false, options);
  ::testing::Test::RecordProperty("cases", cases);
  std::cout << cases << " cases\n";
}

TEST(OperationsLaw, Products) { expect_all(products(), 120); }
TEST(OperationsLaw, Elementwise) { expect_all(elementwise(), 120); }
TEST(OperationsLaw, Shapes) { expect_all(shapes(), 120); }
TEST(OperationsLaw, Reductions) { expect_all(reductions(), 60); }
TEST(OperationsLaw, Networks) { expect_all(networks(), 90); }
TEST(OperationsLaw, ProductsOfWeightsThatAreKept) { expect_all(products(), 30, {.reshard_after_forward = false}); }
TEST(OperationsLaw, NetworksOfWeightsThatAreKept) { expect_all(networks(), 30, {.reshard_after_forward = false}); }

}  // namespace
}  // namespace tessera::operations_test
