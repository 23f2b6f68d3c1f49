// The operations whose ATen calls are written by hand.
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
  Array (*ours)(Term, Term);
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
    {"sign", sign,  // as in JAX: zeros keep their sign, NaN is its own
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
  all.push_back(call(
      "negative", {ids({4, 8}, 9)}, [](Arrays a) { return -a[0]; }, [](Tensors t) { return at::neg(t[0]); }));
  all.push_back(call(
      "add_scalar", {x}, [](Arrays a) { return a[0] + 2.5; }, [](Tensors t) { return at::add(t[0], 2.5); }));
  all.push_back(call(
      "where", {truths(1), x, y}, [](Arrays a) { return where(a[0], a[1], a[2]); },
      [](Tensors t) { return at::where(t[0], t[1], t[2]); }));
  all.push_back(call(
      "astype", {x}, [](Arrays a) { return astype(a[0], int32); }, [](Tensors t) { return t[0].to(at::kInt); }));
}

// ---- reductions and selections

void add_reductions(std::vector<Case>& all) {
  const at::Tensor x = numbers({4, 8, 4});
  all.push_back(call(
      "norm", {x}, [](Arrays a) { return norm(a[0], {1}); },
      [](Tensors t) { return at::sqrt(at::sum(t[0] * t[0], {1})); }));
  all.push_back(call(
      "count_nonzero", {x}, [](Arrays a) { return count_nonzero(a[0], {1}); },
      [](Tensors t) { return at::sum(t[0].ne(0), {1}, false, at::kInt); }));
  all.push_back(call(
      "any", {x}, [](Arrays a) { return any(a[0], {1}); }, [](Tensors t) { return at::any(t[0].ne(0), 1); }));
  all.push_back(call(
      "all", {x}, [](Arrays a) { return tessera::all(a[0], {1}); }, [](Tensors t) { return at::all(t[0].ne(0), 1); }));
  all.push_back(call(
      "argmax", {x}, [](Arrays a) { return argmax(a[0], 1); },
      [](Tensors t) { return at::argmax(t[0], 1).to(at::kInt); }));
  all.push_back(call(
      "argmin", {x}, [](Arrays a) { return argmin(a[0], 1); },
      [](Tensors t) { return at::argmin(t[0], 1).to(at::kInt); }));
  all.push_back(call(
      "argsort", {x}, [](Arrays a) { return argsort(a[0], 1); },
      [](Tensors t) { return at::argsort(t[0], true, 1, false).to(at::kInt); }));
  all.push_back(call(
      "top_k", {numbers({4, 16})}, [](Arrays a) { return top_k(a[0], 2).values; },
      [](Tensors t) {
        const auto [values, indices] = at::sort(t[0], true, -1, true);
        const at::Tensor best = indices.slice(-1, 0, 2).to(at::kInt);
        return values.slice(-1, 0, 2);
      }));
  // Of a dim in one block they are top_k itself.
  for (const char* part : {"top_k_of_blocks", "top_k_of_candidates"}) all.back().operations.emplace_back(part);
}

// ---- shapes and places

void add_shapes(std::vector<Case>& all) {
  const at::Tensor x = numbers({8, 4}), row = numbers({8, 1, 4});
  all.push_back(call(
      "reshape", {x},
      [](Arrays a) {
        return reshape(a[0], {4, 8});
      },
      [](Tensors t) {
        return t[0].reshape({4, 8});
      }));
  all.push_back(call(
      "squeeze", {row}, [](Arrays a) { return squeeze(a[0], {1}); }, [](Tensors t) { return t[0].squeeze(1); }));
  all.push_back(call(
      "expand_dims", {x}, [](Arrays a) { return expand_dims(a[0], {1}); },
      [](Tensors t) { return t[0].unsqueeze(1); }));
  all.push_back(call(
      "tile", {x},
      [](Arrays a) {
        return tile(a[0], {2, 3});
      },
      [](Tensors t) {
        return t[0].repeat({2, 3});
      }));
  all.push_back(call(
      "split", {x}, [](Arrays a) { return split(a[0], 2, 0)[1]; },
      [](Tensors t) {
        return t[0].split_with_sizes({4, 4}, 0)[1];
      }));
  all.push_back(call(
      "slice", {x}, [](Arrays a) { return slice_in_dim(a[0], 1, 7, 0); },
      [](Tensors t) { return t[0].slice(0, 1, 7); }));
  all.push_back(call(
      "dynamic_update_slice", {x, numbers({4, 2})},
      [](Arrays a) {
        return dynamic_update_slice(a[0], a[1], {3, 1});
      },
      [](Tensors t) {
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
  all.push_back(call(
      "embedding", {table, ids({4, 8}, 8)}, [](Arrays a) { return embedding(a[0], a[1]); },
      [](Tensors t) { return at::embedding(t[0], t[1]); }));
  all.push_back(call(
      "take", {numbers({2, 8, 4}), ids({4}, 8)}, [](Arrays a) { return take(a[0], a[1], 1); },
      [](Tensors t) { return t[0].index_select(1, t[1].to(at::kLong)); }));
  all.push_back(call(
      "take_along_axis", {numbers({4, 8}), ids({4, 4}, 8)}, [](Arrays a) { return take_along_axis(a[0], a[1], 1); },
      [](Tensors t) { return at::gather(t[0], 1, t[1].to(at::kLong)); }));
  all.push_back(call(
      "scatter_add", {table, ids({4}, 8), numbers({4, 4}, 3)},
      [](Arrays a) { return scatter_add(a[0], a[1], a[2], 0); },
      [](Tensors t) { return t[0].index_add(0, t[1].to(at::kLong), t[2]); }));
  all.push_back(call(
      "scatter_set", {table, ids({4}, 8), numbers({4, 4}, 3)},
      [](Arrays a) { return scatter_set(a[0], a[1], a[2], 0); },
      [](Tensors t) {
        const at::Tensor writer = last_writers(t[1].to(at::kLong), 8);
        return at::where((writer >= 0).view({8, 1}), t[2].index_select(0, writer.clamp_min(0)), t[0]);
      }));
  all.push_back(call(
      "cross_entropy", {numbers({4, 2, 8}), ids({4, 2}, 8)}, [](Arrays a) { return cross_entropy_each(a[0], a[1]); },
      [](Tensors t) {
        return at::cross_entropy_loss(t[0].reshape({-1, 8}), t[1].reshape({-1}).to(at::kLong), {}, at::Reduction::None)
            .reshape({4, 2});
      }));
}

// ---- networks

void add_layers(std::vector<Case>& all) {
  all.push_back(call(
      "rms_norm", {numbers({4, 2, 8}), numbers({8}, 2)}, [](Arrays a) { return rms_norm(a[0], a[1], 1e-5); },
      [](Tensors t) {
        const at::Tensor r = at::sum(t[0] * t[0], -1, true).div(8.0).add_(1e-5).rsqrt_();
        return (t[0] * r).mul_(t[1]);
      }));
  all.push_back(call(
      "conv_general_dilated", {numbers({2, 4, 5, 5}), numbers({4, 4, 3, 3}, 2)},
      [](Arrays a) {
        return conv_general_dilated(a[0], a[1], {1, 1}, "VALID");
      },
      [](Tensors t) {
        return at::convolution(t[0], t[1], {}, {1, 1}, {0, 0}, {1, 1}, false, {0, 0}, 1);
      }));
  all.push_back(call(
      "max_pool", {numbers({4, 6, 6, 4})},
      [](Arrays a) {
        return max_pool(a[0], {2, 2}, {2, 2}, "VALID");
      },
      [](Tensors t) {
        return at::max_pool2d(t[0].movedim(-1, 1), {2, 2}, {2, 2}).movedim(1, -1);
      }));
  all.push_back(call(
      "avg_pool", {numbers({4, 6, 6, 4})},
      [](Arrays a) {
        return avg_pool(a[0], {2, 2}, {2, 2}, "VALID");
      },
      [](Tensors t) {
        return at::avg_pool2d(t[0].movedim(-1, 1), {2, 2}, {2, 2}).movedim(1, -1);
      }));
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
