// Matrix products: one function in the graph for all local tensors, whose gradients are summed as they are computed.
#include "sharding/linear_algebra.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "sharding/autograd.h"
#include "sharding/elementwise.h"
#include "sharding/operations_common.h"
#include "sharding/run.h"
#include "sharding/tape_state.h"

namespace tessera {

using namespace detail;

namespace {

const Operation matmul_op{"matmul", "", Linearity::multilinear};

}  // namespace

namespace {

std::string matmul_rule(const Attributes&, const std::vector<const Type*>& operands) {
  const size_t left = operands[0]->shape.size(), right = operands[1]->shape.size();
  const std::string a = left == 1 ? "k" : "... i k";
  const std::string b = right == 1 ? "k" : right == 2 ? "k j" : "... k j";
  const std::string dots = left > 1 || right > 2 ? "..." : "";
  return fmt::format("{}, {} -> {}{}{}", a, b, dots, left > 1 ? " i" : "", right > 1 ? " j" : "");
}

// (..., k) as (rows, k)
at::Tensor as_matrix(const at::Tensor& t) {
  if (t.dim() == 2) return t;
  return t.reshape({c10::multiply_integers(t.sizes().slice(0, t.dim() - 1)), t.size(-1)});
}

// a b + a' b' + ... of matrices, of half precision in float32. Where it has few columns, MKL is several times faster at
// its transpose.
class SumOfProducts {
 public:
  void add(const at::Tensor& a, const at::Tensor& b) {
    if (!sum_.defined()) {
      narrow_ = 1 < b.size(1) && b.size(1) < 16;
      sum_ = narrow_ ? at::mm(b.t(), a.t()) : at::mm(a, b);
    } else if (a.itemsize() < 4) {
      sum_ = sum_.to(at::kFloat).add_(narrow_ ? at::mm(b.t(), a.t()) : at::mm(a, b));
    } else if (narrow_) {
      sum_.addmm_(b.t(), a.t());
    } else {
      sum_.addmm_(a, b);
    }
  }
  bool empty() const { return !sum_.defined(); }
  at::Tensor result() const { return narrow_ ? sum_.t().contiguous() : sum_; }

 private:
  at::Tensor sum_;
  bool narrow_ = false;
};

at::Tensor product(const at::Tensor& x, const at::Tensor& w) {
  SumOfProducts y;
  y.add(as_matrix(x), w);
  if (x.dim() == 2) return y.result();
  c10::DimVector sizes(x.sizes());
  sizes.back() = w.size(1);
  return y.result().view(sizes);
}

// What the gradient of x w needs: x for that of w, w for that of x. Slots that share a tensor add to one gradient.
struct Factors {
  Tensors x, w;                 // empty where nothing needs them
  std::vector<int> x_of, w_of;  // by slot
  size_t x_count = 0, w_count = 0;
  std::vector<c10::DimVector> shapes;  // of x

  Tensors backward(const Tensors& gradients) const {
    std::vector<SumOfProducts> dx(x_count), dw(w_count);
    for (size_t s = 0; s < gradients.size(); ++s) {
      const at::Tensor g = as_matrix(gradients[s]);
      if (!w.empty()) dx[x_of[s]].add(g, w[w_of[s]].t());
      if (!x.empty()) dw[w_of[s]].add(as_matrix(x[x_of[s]]).t(), g);
    }
    Tensors result;
    for (size_t i = 0; i < x_count; ++i)
      result.push_back(dx[i].empty() ? at::Tensor() : dx[i].result().view(shapes[i]));
    for (const SumOfProducts& d : dw) result.push_back(d.empty() ? at::Tensor() : d.result());
    return result;
  }
};

void record_product(const Prepared& call, Tensors& out) {
  const Tensors &x = call.array[0]->local, &w = call.array[1]->local;
  if (!is_recorded(x[0]) && !is_recorded(w[0])) return;
  Factors factors{.x_of = {call.index[0], call.index[0] + out.size()},
                  .w_of = {call.index[1], call.index[1] + out.size()},
                  .x_count = x.size(),
                  .w_count = w.size()};
  for (const at::Tensor& t : x) factors.shapes.emplace_back(t.sizes());
  if (is_recorded(x[0])) factors.w = w;
  if (is_recorded(w[0])) factors.x = x;
  Tensors inputs = x;
  inputs.append(w.begin(), w.end());
  record_function("matmul", inputs, out,
                  [factors = std::move(factors)](Tensors gradients) { return factors.backward(gradients); });
}

Array matrix_product(const CallSite& site, const Array& x, const Array& w) {
  Prepared call;
  const Array* operands[] = {&x, &w};
  prepare(call, site, operands, 2);
  try {
    Tensors out;
    {
      at::AutoGradMode off(false);
      for (int s = 0; s < call.plan->runs; ++s) out.push_back(product(*call.local(0, s), *call.local(1, s)));
    }
    record_product(call, out);
    return Array(finish(call, std::move(out)));
  } catch (const c10::Error& error) {
    refuse(call, "matmul", error);
  }
}

}  // namespace

namespace {

Array promoted_product(const Operand& a, const Operand& b, DType dtype) {
  const Array x = astype(a, dtype), y = astype(b, dtype);
  return matmul({x, a.where()}, {y, b.where()});
}

Array product_of(const Operand& a, const Operand& b) {
  const Array &x = a.array(), &y = b.array();
  const Type &left = *materialized(x, "matmul").type, &right = *materialized(y, "matmul").type;
  if (left.shape.empty() || right.shape.empty())
    fail(ErrorKind::shape_mismatch, "matmul",
         fmt::format("given {} and {}: a scalar has no matrix product. Use *.", x.type_string(), y.type_string()));
  if (left.dtype != right.dtype) return promoted_product(a, b, promote(left.dtype, right.dtype));
  if (left.dtype == boolean) return not_equal(Operand(promoted_product(a, b, int32), a.where()), 0);
  const CallSite site{.operation = matmul_op, .rule = matmul_rule, .where = a.where()};
  if (left.shape.size() > 1 && right.shape.size() == 2 && !is_nested()) return matrix_product(site, x, y);
  return run(site, {&x, &y}, [](Locals t, const Where&) { return at::matmul(t[0], t[1]); });
}

}  // namespace

Array matmul(Operand a, Operand b, const ResultOptions& options) {
  return placed_result(product_of(a, b), options, "matmul", a.where());
}

}  // namespace tessera
