// Cases of single operations with hand-written ATen calls.
#include "tests/benchmarks/single_calls.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

namespace tessera::benchmarks {

namespace {

using testing::Case;
using Arrays = const std::vector<Array>&;
using Tensors = const std::vector<at::Tensor>&;

at::Tensor numbers(const Shape& shape, uint64_t seed = 1) { return testing::random_tensor(shape, seed); }
at::Tensor ids(const Shape& shape, int64_t below) { return testing::random_integers(shape, below, 2); }
at::Tensor truths(uint64_t seed) { return numbers({4, 8}, seed) > 0; }

Case call(const char* operation, std::vector<at::Tensor> inputs, std::function<Array(Arrays)> ours,
          std::function<at::Tensor(Tensors)> theirs) {
  return {{operation}, {operation, std::move(inputs), std::move(ours), std::move(theirs)}};
}

// ---- elementwise

struct Binary {
  const char* operation;
  Array (*ours)(ArrayOrNumber, ArrayOrNumber);
  at::Tensor (*theirs)(const at::Tensor&, const at::Tensor&);
};

const Binary comparisons[] = {
    {"less", operator<, at::lt},           {"less_equal", operator<=, at::le}, {"greater", operator>, at::gt},
    {"greater_equal", operator>=, at::ge}, {"equal", equal, at::eq},           {"not_equal", not_equal, at::ne},
};
const Binary logic[] = {
    {"logical_and", logical_and, at::logical_and}, {"logical_or", logical_or, at::logical_or},
    {"logical_xor", logical_xor, at::logical_xor}, {"bitwise_and", bitwise_and, at::bitwise_and},
    {"bitwise_or", bitwise_or, at::bitwise_or},    {"bitwise_xor", bitwise_xor, at::bitwise_xor},
};

struct Unary {
  const char* operation;
  Array (*ours)(Operand);
  at::Tensor (*theirs)(const at::Tensor&);
};

const Unary questions[] = {
    {"logical_not", logical_not, at::logical_not},
    {"bitwise_not", bitwise_not, at::bitwise_not},
};
const Unary of_numbers[] = {
    {"isfinite", isfinite, at::isfinite},
    {"isinf", isinf, at::isinf},
    {"isnan", isnan, at::isnan},
    {"scale", operator-, at::neg},
    {"sign", sign,  // as in JAX: zeros keep their sign, NaN stays NaN
     [](const at::Tensor& t) {
       constexpr double most = std::numeric_limits<float>::max();
       return at::mul(t, most).mul_(most).clamp_(-1, 1);
     }},
    {"square", square, [](const at::Tensor& t) { return at::mul(t, t); }},
    {"softplus", softplus, [](const at::Tensor& t) { return at::softplus(t, 1, 40); }},
    {"cbrt", cbrt, [](const at::Tensor& t) { return at::mul(at::sign(t), at::pow(at::abs(t), 1.0 / 3)); }},
};

template <class Row>
void add_unary(std::vector<Case>& all, const Row& row, const at::Tensor& x) {
  all.push_back(call(
      row.operation, {x}, [f = row.ours](Arrays a) { return f(a[0]); },
      [f = row.theirs](Tensors t) { return f(t[0]); }));
}

void add_binary(std::vector<Case>& all, const Binary& row, const at::Tensor& x, const at::Tensor& y) {
  all.push_back(call(
      row.operation, {x, y}, [f = row.ours](Arrays a) { return f(a[0], a[1]); },
      [f = row.theirs](Tensors t) { return f(t[0], t[1]); }));
}

void add_elementwise(std::vector<Case>& all) {
  const at::Tensor x = numbers({4, 8}), y = numbers({8}, 2);
  for (const Binary& row : comparisons) add_binary(all, row, x, y);
  for (const Binary& row : logic) add_binary(all, row, truths(1), truths(2));
  for (const Unary& row : questions) add_unary(all, row, truths(1));
  for (const Unary& row : of_numbers) add_unary(all, row, x);
  all.push_back(call("negative", {ids({4, 8}, 9)}, OURS(-x[0]), THEIRS(at::neg(x[0]))));
  all.push_back(call("add_scalar", {x}, OURS(x[0] + 2.5), THEIRS(at::add(x[0], 2.5))));
  all.push_back(call("where", {truths(1), x, y}, OURS(where(x[0], x[1], x[2])), THEIRS(at::where(x[0], x[1], x[2]))));
  all.push_back(call("astype", {x}, OURS(astype(x[0], int32)), THEIRS(x[0].to(at::kInt))));
}

// ---- reductions and selections

void add_reductions(std::vector<Case>& all) {
  const at::Tensor x = numbers({4, 8, 4});
  all.push_back(call("norm", {x}, OURS(norm(x[0], {1})), THEIRS(at::sqrt(at::sum(x[0] * x[0], {1})))));
  all.push_back(
      call("count_nonzero", {x}, OURS(count_nonzero(x[0], {1})), THEIRS(at::sum(x[0].ne(0), {1}, false, at::kInt))));
  all.push_back(call("any", {x}, OURS(any(x[0], {1})), THEIRS(at::any(x[0].ne(0), 1))));
  all.push_back(call("all", {x}, OURS(tessera::all(x[0], {1})), THEIRS(at::all(x[0].ne(0), 1))));
  all.push_back(call("argmax", {x}, OURS(argmax(x[0], 1)), THEIRS(at::argmax(x[0], 1).to(at::kInt))));
  all.push_back(call("argmin", {x}, OURS(argmin(x[0], 1)), THEIRS(at::argmin(x[0], 1).to(at::kInt))));
  all.push_back(call("argsort", {x}, OURS(argsort(x[0], 1)), THEIRS(at::argsort(x[0], true, 1, false).to(at::kInt))));
  all.push_back(call("top_k", {numbers({4, 16})}, OURS(top_k(x[0], 2).values), [](Tensors t) {
    const auto [values, indices] = at::sort(t[0], true, -1, true);
    const at::Tensor best = indices.slice(-1, 0, 2).to(at::kInt);
    return values.slice(-1, 0, 2);
  }));
  // If the dimension is in one block, these operations do the same work as top_k.
  for (const char* part : {"top_k_of_blocks", "top_k_of_candidates"}) all.back().operations.emplace_back(part);
}

// ---- shapes and places

void add_shapes(std::vector<Case>& all) {
  const at::Tensor x = numbers({8, 4}), row = numbers({8, 1, 4});
  all.push_back(call("reshape", {x}, OURS(reshape(x[0], {4, 8})), THEIRS(x[0].reshape({4, 8}))));
  all.push_back(call("squeeze", {row}, OURS(squeeze(x[0], {1})), THEIRS(x[0].squeeze(1))));
  all.push_back(call("expand_dims", {x}, OURS(expand_dims(x[0], {1})), THEIRS(x[0].unsqueeze(1))));
  all.push_back(call("tile", {x}, OURS(tile(x[0], {2, 3})), THEIRS(x[0].repeat({2, 3}))));
  all.push_back(call("split", {x}, OURS(split(x[0], 2, 0)[1]), THEIRS(x[0].split_with_sizes({4, 4}, 0)[1])));
  all.push_back(call("slice", {x}, OURS(slice_in_dim(x[0], 1, 7, 0)), THEIRS(x[0].slice(0, 1, 7))));
  all.push_back(
      call("dynamic_update_slice", {x, numbers({4, 2})}, OURS(dynamic_update_slice(x[0], x[1], {3, 1})), [](Tensors t) {
        at::Tensor y = t[0].clone();
        y.slice(0, 3, 7).slice(1, 1, 3).copy_(t[1]);
        return y;
      }));
}

at::Tensor last_writers(const at::Tensor& ids, int64_t rows) {
  const at::Tensor order = at::arange(ids.numel(), ids.options());
  return at::full({rows}, -1, ids.options()).scatter_reduce(0, ids, order, "amax");
}

void add_lookups(std::vector<Case>& all) {
  const at::Tensor table = numbers({8, 4});
  all.push_back(
      call("embedding", {table, ids({4, 8}, 8)}, OURS(embedding(x[0], x[1])), THEIRS(at::embedding(x[0], x[1]))));
  all.push_back(call("take", {numbers({2, 8, 4}), ids({4}, 8)}, OURS(take(x[0], x[1], 1)),
                     THEIRS(x[0].index_select(1, x[1].to(at::kLong)))));
  all.push_back(call("take_along_axis", {numbers({4, 8}), ids({4, 4}, 8)}, OURS(take_along_axis(x[0], x[1], 1)),
                     THEIRS(at::gather(x[0], 1, x[1].to(at::kLong)))));
  all.push_back(call("scatter_add", {table, ids({4}, 8), numbers({4, 4}, 3)}, OURS(scatter_add(x[0], x[1], x[2], 0)),
                     THEIRS(x[0].index_add(0, x[1].to(at::kLong), x[2]))));
  all.push_back(call("scatter_set", {table, ids({4}, 8), numbers({4, 4}, 3)}, OURS(scatter_set(x[0], x[1], x[2], 0)),
                     [](Tensors t) {
                       const at::Tensor writer = last_writers(t[1].to(at::kLong), 8);
                       return at::where((writer >= 0).view({8, 1}), t[2].index_select(0, writer.clamp_min(0)), t[0]);
                     }));
  all.push_back(call(
      "cross_entropy", {numbers({4, 2, 8}), ids({4, 2}, 8)}, OURS(cross_entropy_per_position(x[0], x[1])),
      THEIRS(at::cross_entropy_loss(x[0].reshape({-1, 8}), x[1].reshape({-1}).to(at::kLong), {}, at::Reduction::None)
                 .reshape({4, 2}))));
}

// ---- networks

void add_layers(std::vector<Case>& all) {
  all.push_back(
      call("rms_norm", {numbers({4, 2, 8}), numbers({8}, 2)}, OURS(rms_norm(x[0], x[1], 1e-5)), [](Tensors t) {
        const at::Tensor r = at::sum(t[0] * t[0], -1, true).div(8.0).add_(1e-5).rsqrt_();
        return (t[0] * r).mul_(t[1]);
      }));
  all.push_back(call("conv_general_dilated", {numbers({2, 4, 5, 5}), numbers({4, 4, 3, 3}, 2)},
                     OURS(conv_general_dilated(x[0], x[1], {1, 1}, "VALID")),
                     THEIRS(at::convolution(x[0], x[1], {}, {1, 1}, {0, 0}, {1, 1}, false, {0, 0}, 1))));
  all.push_back(call("max_pool", {numbers({4, 6, 6, 4})}, OURS(max_pool(x[0], {2, 2}, {2, 2}, "VALID")),
                     THEIRS(at::max_pool2d(x[0].movedim(-1, 1), {2, 2}, {2, 2}).movedim(1, -1))));
  all.push_back(call("avg_pool", {numbers({4, 6, 6, 4})}, OURS(avg_pool(x[0], {2, 2}, {2, 2}, "VALID")),
                     THEIRS(at::avg_pool2d(x[0].movedim(-1, 1), {2, 2}, {2, 2}).movedim(1, -1))));
}

}  // namespace

std::vector<Case> single_calls() {
  std::vector<Case> all;
  add_elementwise(all);
  add_reductions(all);
  add_shapes(all);
  add_lookups(all);
  add_layers(all);
  return all;
}

}  // namespace tessera::benchmarks
