// The validator's cases of reductions, scans and softmax.
#include "tests/sharding/operations/cases.h"

namespace tessera::testing {

namespace {

using Arrays = const std::vector<Array>&;
using Values = const std::vector<at::Tensor>&;
using Ours = std::function<Array(const Array&, const Dims&, bool)>;
using Theirs = std::function<at::Tensor(const at::Tensor&, at::IntArrayRef, bool)>;

// Integers with many equal elements, some of them zeros.
at::Tensor with_ties(const Shape& shape, uint64_t seed) { return random_integers(shape, 4, seed).to(at::kDouble) - 1; }

std::string over(const char* name, const Dims& dims, bool keepdims) {
  return fmt::format("{} over ({}){}", name, fmt::join(dims, ","), keepdims ? " keepdims" : "");
}

// A reduction over one dimension, over several, and over all.
void add_reductions(std::vector<Case>& cases, const char* operation, const at::Tensor& x, const Ours& ours,
                    const Theirs& theirs) {
  for (const auto& [dims, keepdims] :
       std::vector<std::pair<Dims, bool>>{{{1}, false}, {{0, -1}, true}, {{2}, true}, {{}, false}}) {
    std::vector<int64_t> their_dims(dims.begin(), dims.end());
    if (dims.empty()) their_dims = {0, 1, 2};
    cases.push_back({{operation},
                     {over(operation, dims, keepdims),
                      {x},
                      [=, dims = dims, keepdims = keepdims](Arrays a) { return ours(a[0], dims, keepdims); },
                      [=, keepdims = keepdims](Values a) { return theirs(a[0], their_dims, keepdims); }}});
  }
}

at::Tensor product_over(at::Tensor t, at::IntArrayRef dims, bool keepdims) {
  for (int64_t d = t.dim() - 1; d >= 0; --d)
    for (int64_t reduced : dims)
      if (at::maybe_wrap_dim(reduced, t.dim()) == d) t = at::prod(t, d, /*keepdim=*/true);
  if (!keepdims) t = t.squeeze();
  return t;
}

void add_sums(std::vector<Case>& cases, const at::Tensor& x) {
  add_reductions(
      cases, "sum", x, [](const Array& a, const Dims& d, bool k) { return sum(a, d, k); },
      [](const at::Tensor& a, at::IntArrayRef d, bool k) { return at::sum(a, d, k); });
  add_reductions(
      cases, "mean", x, [](const Array& a, const Dims& d, bool k) { return mean(a, d, k); },
      [](const at::Tensor& a, at::IntArrayRef d, bool k) { return at::mean(a, d, k); });
  add_reductions(
      cases, "var", x, [](const Array& a, const Dims& d, bool k) { return var(a, d, k); },
      [](const at::Tensor& a, at::IntArrayRef d, bool k) { return at::var(a, d, at::Scalar(0), k); });
  add_reductions(
      cases, "var", x, [](const Array& a, const Dims& d, bool k) { return std(a, d, k, 1); },
      [](const at::Tensor& a, at::IntArrayRef d, bool k) { return at::std(a, d, at::Scalar(1), k); });
  add_reductions(
      cases, "norm", x, [](const Array& a, const Dims& d, bool k) { return norm(a, d, k); },
      [](const at::Tensor& a, at::IntArrayRef d, bool k) { return at::linalg_vector_norm(a, 2, d, k); });
  add_reductions(
      cases, "logsumexp", x, [](const Array& a, const Dims& d, bool k) { return logsumexp(a, d, k); },
      [](const at::Tensor& a, at::IntArrayRef d, bool k) { return at::logsumexp(a, d, k); });
}

// Counts have no gradient, so they are used as weights.
void add_counts(std::vector<Case>& cases, const at::Tensor& x) {
  const auto weigh = [](const Array& a, const Array& n) { return astype(n, float64) * sum(a); };
  const auto weighed = [](const at::Tensor& a, const at::Tensor& n) { return n.to(at::kDouble) * a.sum(); };
  add_reductions(
      cases, "count_nonzero", x,
      [=](const Array& a, const Dims& d, bool k) { return weigh(a, count_nonzero(a, d, k)); },
      [=](const at::Tensor& a, at::IntArrayRef d, bool k) { return weighed(a, at::sum(a.ne(0), d, k)); });
  add_reductions(
      cases, "any", x, [=](const Array& a, const Dims& d, bool k) { return weigh(a, any(a, d, k)); },
      [=](const at::Tensor& a, at::IntArrayRef d, bool k) { return weighed(a, a.ne(0).sum(d, k).gt(0)); });
  add_reductions(
      cases, "all", x, [=](const Array& a, const Dims& d, bool k) { return weigh(a, all(a, d, k)); },
      [=](const at::Tensor& a, at::IntArrayRef d, bool k) { return weighed(a, a.eq(0).sum(d, k).eq(0)); });
}

void add_products(std::vector<Case>& cases, const at::Tensor& x) {
  add_reductions(
      cases, "prod", x, [](const Array& a, const Dims& d, bool k) { return prod(a, d, k); }, product_over);
}

void add_extremes(std::vector<Case>& cases, const at::Tensor& x) {
  add_reductions(
      cases, "max", x, [](const Array& a, const Dims& d, bool k) { return max(a, d, k); },
      [](const at::Tensor& a, at::IntArrayRef d, bool k) { return at::amax(a, d, k); });
  add_reductions(
      cases, "min", x, [](const Array& a, const Dims& d, bool k) { return min(a, d, k); },
      [](const at::Tensor& a, at::IntArrayRef d, bool k) { return at::amin(a, d, k); });
}

void add_searches(std::vector<Case>& cases, const at::Tensor& x) {
  for (const std::optional<int> dim : {std::optional<int>(0), {1}, {-1}, {}})
    for (const bool largest : {true, false}) {
      const char* name = largest ? "argmax" : "argmin";
      cases.push_back({{name},
                       {fmt::format("{} over {}", name, dim ? std::to_string(*dim) : "all"),
                        {x},
                        [=](Arrays a) {
                          const Array index = largest ? argmax(a[0], dim, true) : argmin(a[0], dim, true);
                          return a[0] * astype(index, float64);
                        },
                        [=](Values a) {
                          const std::optional<int64_t> d = dim ? std::optional<int64_t>(*dim) : std::nullopt;
                          const at::Tensor index =
                              largest ? at::argmax(a[0], d, d.has_value()) : at::argmin(a[0], d, d.has_value());
                          return a[0] * index.to(at::kDouble);
                        }}});
    }
}

void add_along(std::vector<Case>& cases, const at::Tensor& x) {
  for (const int dim : {0, 1, -1}) {
    const auto add = [&](const char* name, std::vector<std::string> operations, auto ours, auto theirs) {
      cases.push_back({std::move(operations),
                       {fmt::format("{} along {}", name, dim),
                        {x},
                        OURS(ours(x[0], dim)),
                        THEIRS(theirs(x[0], dim)),
                        1e-12,
                        true}});
    };
    add(
        "softmax", {"softmax"}, [](const Array& a, int d) { return softmax(a, d); },
        [](const at::Tensor& a, int d) { return at::softmax(a, d); });
    add(
        "log_softmax", {"log_softmax"}, [](const Array& a, int d) { return log_softmax(a, d); },
        [](const at::Tensor& a, int d) { return at::log_softmax(a, d); });
    add(
        "cumsum", {"cumsum", "cumsum_total", "cumsum_after"}, [](const Array& a, int d) { return cumsum(a, d); },
        [](const at::Tensor& a, int d) { return at::cumsum(a, d); });
    add(
        "cumprod", {"cumprod", "cumprod_total", "cumprod_after"}, [](const Array& a, int d) { return cumprod(a, d); },
        [](const at::Tensor& a, int d) { return at::cumprod(a, d); });
  }
}

void add_norms(std::vector<Case>& cases, const at::Tensor& x, const at::Tensor& scale, const at::Tensor& bias) {
  const auto rms = [](const at::Tensor& t) { return t / at::sqrt((t * t).mean(-1, true) + 1e-5); };
  cases.push_back({{"layer_norm"},
                   {"layer_norm",
                    {x, scale, bias},
                    OURS(layer_norm(x[0], x[1], x[2])),
                    THEIRS(at::layer_norm(x[0], {x[1].size(0)}, x[1], x[2])),
                    1e-12,
                    true}});
  cases.push_back({{"layer_norm"},
                   {"layer_norm without scale",
                    {x},
                    OURS(layer_norm(x[0])),
                    THEIRS(at::layer_norm(x[0], {x[0].size(-1)})),
                    1e-12,
                    true}});
  cases.push_back(
      {{"rms_norm"}, {"rms_norm", {x, scale}, OURS(rms_norm(x[0], x[1])), THEIRS(rms(x[0]) * x[1]), 1e-12, true}});
  cases.push_back(
      {{"rms_norm"}, {"rms_norm without scale", {x}, OURS(rms_norm(x[0])), THEIRS(rms(x[0])), 1e-12, true}});
  cases.push_back(
      {{"cross_entropy"},
       {"cross_entropy",
        {x, random_integers({4, 2}, 8, 5)},
        OURS(cross_entropy(x[0], x[1])),
        THEIRS(at::cross_entropy_loss(x[0].reshape({-1, x[0].size(-1)}), x[1].reshape({-1}).to(at::kLong)))}});
}

}  // namespace

std::vector<Case> reduction_cases() {
  const at::Tensor normal = random_tensor({4, 8, 4}, 1), ties = with_ties({4, 8, 4}, 2);
  std::vector<Case> cases;
  add_sums(cases, normal);
  add_counts(cases, ties);
  add_extremes(cases, ties);
  add_products(cases, ties);
  add_products(cases, normal);
  add_searches(cases, ties);
  add_along(cases, ties);
  add_norms(cases, random_tensor({4, 2, 8}, 1), random_tensor({8}, 2), random_tensor({8}, 3));
  return cases;
}

}  // namespace tessera::testing
