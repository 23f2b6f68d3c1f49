// Matrix products of all local shards, recorded as one node of the autograd graph.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "sharding/array/autograd.h"
#include "sharding/array/tape_state.h"
#include "sharding/base/fail.h"
#include "sharding/kernels/parallel_for.h"
#include "sharding/kernels/plain.h"
#include "sharding/kernels/tensors.h"
#include "sharding/operations/argument_checks.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/linalg/linear_algebra.h"
#include "sharding/propagation/run.h"

namespace tessera::detail {
namespace {

// Returns the rule "... i k, ... k j -> ... i j". A vector lacks i or j. A matrix as the second operand has no batch.
ShardingRule matmul_rule(const Attributes&, const OperandTypes& operands) {
  const size_t left = operands[0]->shape.size(), right = operands[1]->shape.size();
  const RuleFactor i = factor("i"), j = factor("j"), k = factor("k");
  RuleDims a{k}, b{k}, out;
  if (left > 1) a = {any_dims(), i, k};
  if (right > 1) b.push_back(j);
  if (right > 2) b.insert(b.begin(), any_dims());
  if (left > 1 || right > 2) out.push_back(any_dims());
  if (left > 1) out.push_back(i);
  if (right > 1) out.push_back(j);
  return {{a, b}, {out}};
}

const Operation matmul_op{"matmul", matmul_rule, Linearity::multilinear, Padded::zeros};
const Operation linear_op{"matmul", "... i k, k j, j -> ... i j", Linearity::nonlinear, Padded::zeros};

// Views (..., k) as (rows, k).
at::Tensor as_matrix(const at::Tensor& t) {
  if (t.dim() == 2) return t;
  return t.reshape({c10::multiply_integers(t.sizes().slice(0, t.dim() - 1)), t.size(-1)});
}

// Returns whether b has so few columns that MKL computes the transposed product several times faster.
bool is_narrow(const at::Tensor& a, const at::Tensor& b) {
  return 1 < b.size(1) && b.size(1) < 16 && a.numel() >= 4096 && a.is_cpu() && !uses_plain(Kernel::matrix_products);
}

// Sums matrix products, in float32 for half precision. The `row` that the first product may have (a bias) is added to
// each row of the sum.
class SumOfProducts {
 public:
  void add(const at::Tensor& a, const at::Tensor& b, const at::Tensor* row = nullptr) {
    if (!sum_.defined()) {
      narrow_ = is_narrow(a, b);
      sum_ = row ? times(a, b, *row) : times(a, b);
    } else if (a.itemsize() < 4) {
      sum_ = sum_.to(at::kFloat).add_(times(a, b));
    } else if (narrow_) {
      sum_.addmm_(b.t(), a.t());
    } else {
      sum_ = plus_product(std::move(sum_), a, b);
    }
  }
  bool empty() const { return !sum_.defined(); }
  at::Tensor result() const { return narrow_ ? sum_.t().contiguous() : sum_; }

 private:
  at::Tensor times(const at::Tensor& a, const at::Tensor& b) const {
    return narrow_ ? at::mm(b.t(), a.t()) : multiplied(a, b);
  }
  at::Tensor times(const at::Tensor& a, const at::Tensor& b, const at::Tensor& row) const {
    return narrow_ ? at::addmm(row.unsqueeze(1), b.t(), a.t()) : multiplied(a, b, row);
  }

  at::Tensor sum_;
  bool narrow_ = false;
};

at::Tensor product(const at::Tensor& x, const at::Tensor& w, const at::Tensor* bias = nullptr) {
  SumOfProducts y;
  y.add(as_matrix(x), w, bias);
  if (x.dim() == 2) return y.result();
  c10::DimVector sizes(x.sizes());
  sizes.back() = w.size(1);
  return y.result().reshape(sizes);
}

// The tensors that the gradients of x w + bias need: x for the gradient of w, and w for the gradient of x. Local shards
// that share a tensor add to one gradient.
struct Factors {
  Tensors x, w;                          // empty if not needed
  std::vector<int> x_of, w_of, bias_of;  // by slot; bias_of is empty if no gradient of the bias is wanted
  size_t x_count = 0, w_count = 0, bias_count = 0;
  int64_t cost = 0;                    // nanoseconds of the product: see parallel_for
  std::vector<c10::DimVector> shapes;  // shapes of x

  // Returns the gradients. Each is one job, which sums the terms of its local shards in their order.
  Tensors backward(const Tensors& gradients) const {
    struct Job {
      at::Tensor (Factors::*gradient)(const Tensors& g, int number) const;
      int number;
      size_t place;
    };
    std::vector<Job> jobs;
    const auto add = [&](decltype(Job::gradient) gradient, size_t count, size_t first_place) {
      for (size_t i = 0; i < count; ++i) jobs.push_back({gradient, static_cast<int>(i), first_place + i});
    };
    const size_t of_x = w.empty() ? 0 : x_count, of_w = x.empty() ? 0 : w_count;
    if (w_count <= x_count) add(&Factors::w_gradient, of_w, x_count);  // longer jobs first
    add(&Factors::x_gradient, of_x, 0);
    if (w_count > x_count) add(&Factors::w_gradient, of_w, x_count);
    add(&Factors::bias_gradient, bias_of.empty() ? 0 : bias_count, x_count + w_count);

    Tensors g, result(x_count + w_count + bias_count);
    for (const at::Tensor& t : gradients) g.push_back(as_matrix(t));
    parallel_for(static_cast<int>(jobs.size()), 2 * cost, [&](int i) {
      const at::AutoGradMode off(false);
      result[jobs[i].place] = (this->*jobs[i].gradient)(g, jobs[i].number);
    });
    return result;
  }

 private:
  at::Tensor x_gradient(const Tensors& g, int number) const {
    SumOfProducts sum;
    for (size_t s = 0; s < g.size(); ++s)
      if (x_of[s] == number) sum.add(g[s], w[w_of[s]].t());
    return sum.empty() ? at::Tensor() : sum.result().reshape(shapes[number]);
  }
  at::Tensor w_gradient(const Tensors& g, int number) const {
    SumOfProducts sum;
    for (size_t s = 0; s < g.size(); ++s)
      if (w_of[s] == number) sum.add(as_matrix(x[x_of[s]]).t(), g[s]);
    return sum.empty() ? at::Tensor() : sum.result();
  }
  at::Tensor bias_gradient(const Tensors& g, int number) const {
    Tensors terms;
    for (size_t s = 0; s < g.size(); ++s)
      if (bias_of[s] == number) terms.push_back(g[s].sum(0));
    return terms.empty() ? at::Tensor() : sum_tensors(terms);
  }
};

// Returns the time of one core for all products, in nanoseconds.
int64_t cost_of(const Prepared& call) {
  const at::Tensor &x = *call.local(0, 0), &w = *call.local(1, 0);
  return call.plan->runs * (2'000 + x.numel() * w.size(1) / 20);
}

// Records all products as one function of all operands.
void record_product(const Prepared& call, Tensors& out) {
  const Tensors &x = call.array[0]->local, &w = call.array[1]->local;
  const Tensors bias = call.operands > 2 ? call.array[2]->local : Tensors();
  const bool has_bias = !bias.empty() && is_recorded(bias[0]);
  if (!is_recorded(x[0]) && !is_recorded(w[0]) && !has_bias) return;
  Factors factors{.x_of = {call.index[0], call.index[0] + out.size()},
                  .w_of = {call.index[1], call.index[1] + out.size()},
                  .x_count = x.size(),
                  .w_count = w.size(),
                  .bias_count = bias.size(),
                  .cost = cost_of(call)};
  if (has_bias) factors.bias_of.assign(call.index[2], call.index[2] + out.size());
  for (const at::Tensor& t : x) factors.shapes.emplace_back(t.sizes());
  if (is_recorded(x[0])) factors.w = w;
  if (is_recorded(w[0])) factors.x = x;
  Tensors inputs = x;
  inputs.append(w.begin(), w.end());
  inputs.append(bias.begin(), bias.end());
  record_function("matmul", inputs, out,
                  [factors = std::move(factors)](Tensors gradients) { return factors.backward(gradients); });
}

Array product_of(const CallSite& site, const std::initializer_list<const Array*>& operands) {
  Prepared call;
  prepare(call, site, operands.begin(), static_cast<int>(operands.size()));
  Array result(begin_result(call));
  Tensors& out = result.impl()->local;
  out.resize(call.plan->runs);
  try {
    const ScopedIntraOpThreads alone(call.plan->shares_the_cpu());
    parallel_for(call.plan->runs, cost_of(call), [&](int s) {
      const at::AutoGradMode off(false);
      out[s] = product(*call.local(0, s), *call.local(1, s), call.operands > 2 ? call.local(2, s) : nullptr);
    });
    record_product(call, out);
    finish_results(call, {&result, 1});
    return result;
  } catch (const std::exception& error) {
    refuse(call, "matmul", error);
  }
}

// Multiplies like at::matmul, for two operands neither of which is a batch of matrices.
at::Tensor with_vectors(const at::Tensor& a, const at::Tensor& b) {
  if (!are_integers_of_a_gpu(a)) return at::matmul(a, b);
  const at::Tensor rows = a.dim() == 1 ? a.unsqueeze(0) : as_matrix(a), columns = b.dim() == 1 ? b.unsqueeze(1) : b;
  Shape shape = a.sizes().slice(0, a.dim() - 1).vec();
  shape.insert(shape.end(), b.sizes().begin() + 1, b.sizes().end());
  return multiplied(rows, columns).reshape(shape);
}

Array promoted_product(const Operand& a, const Operand& b, DType dtype) {
  const Array x = astype(a, dtype), y = astype(b, dtype);
  return matmul({x, a.where()}, {y, b.where()});
}

// Returns whether the shapes match and fusing the bias does not change the rounding (on a GPU it never does).
bool fit(const Type& x, const Type& kernel, const Type& bias) {
  const bool sizes = x.shape.size() > 1 && kernel.shape.size() == 2 && bias.shape.size() == 1 &&
                     x.shape.back() == kernel.shape[0] && bias.shape[0] == kernel.shape[1];
  const bool exact =
      x.dtype == float32 || x.dtype == float64 || (is_floating(x.dtype) && x.mesh && x.mesh->device.is_cuda());
  const bool are_alike = kernel.dtype == x.dtype && bias.dtype == x.dtype;
  return sizes && exact && are_alike && !x.unreduced && !kernel.unreduced && !bias.unreduced;
}

// Returns whether the bias changes neither the shardings of x and the kernel nor the sharding of the result.
bool places_alike(const Plan& with_bias, const Plan& without) {
  for (size_t i = 0; i < without.operands.size(); ++i)
    if (with_bias.operands[i].recorded != without.operands[i].recorded) return false;
  return with_bias.out[0] == without.out[0] && !without.out[0]->unreduced;
}

}  // namespace

Array linear(const Operand& x, const Operand& kernel, const Operand& bias) {
  const Array *a = &x.array(), *w = &kernel.array(), *b = &bias.array();
  const CallSite product{.operation = matmul_op, .where = x.where()}, sum{.operation = linear_op, .where = x.where()};
  const auto type = [](const Array& array) -> const Type& { return *materialized(array, "matmul").type; };
  const bool given = !a->is_absent() && !w->is_absent() && !b->is_absent();
  if (given && !is_nested() && !uses_plain(Kernel::fused_bias) && fit(type(*a), type(*w), type(*b))) {
    const Plan *without = plan_of(product, {a, w}), *with = without ? plan_of(sum, {a, w, b}) : nullptr;
    if (with && places_alike(*with, *without)) return product_of(sum, {a, w, b});
  }
  return Operand(matmul(x, kernel), x.where()) + bias;
}

}  // namespace tessera::detail

namespace tessera {

using namespace detail;

Array matmul(Operand a, Operand b, const ResultOptions& options) {
  if (options.out_sharding) return placed_result(matmul(a, b), options, "matmul", a.where());
  const Array &x = a.array(), &y = b.array();
  const Type &left = *materialized(x, "matmul").type, &right = *materialized(y, "matmul").type;
  if (left.shape.empty() || right.shape.empty())
    fail(ErrorKind::shape_mismatch, "matmul", "given {} and {}: a scalar has no matrix product. Use *.",
         x.type_string(), y.type_string());
  if (left.dtype != right.dtype) return promoted_product(a, b, promote(left.dtype, right.dtype));
  if (left.dtype == boolean) return not_equal(Operand(promoted_product(a, b, int32), a.where()), 0);
  const CallSite site{.operation = matmul_op, .where = a.where()};
  if (left.shape.size() > 1 && right.shape.size() == 2 && !is_nested()) return product_of(site, {&x, &y});
  return run(site, {&x, &y}, [](Locals t, const BlockContext&) { return with_vectors(t[0], t[1]); });
}

}  // namespace tessera
