// Matrix products, one function in the graph for all local tensors, and products that are written as equations.
#include "sharding/operations/linear_algebra.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>

#include "sharding/array/autograd.h"
#include "sharding/array/short_tensors.h"
#include "sharding/array/side_by_side.h"
#include "sharding/array/tape_state.h"
#include "sharding/diagnostics/fail.h"
#include "sharding/operations/argument_checks.h"
#include "sharding/operations/elementwise.h"
#include "sharding/operations/shapes.h"
#include "sharding/propagation/run.h"
#include "sharding/redistribution/overlapped_sums.h"

namespace tessera {

using namespace detail;

namespace {

// "... i k, ... k j -> ... i j", where a vector lacks i or j, and a matrix that is the second operand has no batch.
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
const Operation outer_op{"outer", "i, j -> i j", Linearity::multilinear, Padded::kept};

// (..., k) as (rows, k)
at::Tensor as_matrix(const at::Tensor& t) {
  if (t.dim() == 2) return t;
  return reshaped(t, {c10::multiply_integers(t.sizes().slice(0, t.dim() - 1)), t.size(-1)});
}

// a b + a' b' + ... of matrices, of half precision in float32. Where it has few columns, MKL is several times faster at
// its transpose.
class SumOfProducts {
 public:
  void add(const at::Tensor& a, const at::Tensor& b) {
    if (!sum_.defined()) {
      narrow_ = 1 < b.size(1) && b.size(1) < 16 && a.numel() >= 4096;
      sum_ = times(a, b);
    } else if (a.itemsize() < 4) {
      sum_ = sum_.to(at::kFloat).add_(times(a, b));
    } else if (narrow_) {
      sum_.addmm_(transposed(b), transposed(a));
    } else {
      sum_.addmm_(a, b);
    }
  }
  bool empty() const { return !sum_.defined(); }
  at::Tensor result() const { return narrow_ ? transposed_copy(sum_) : sum_; }

 private:
  at::Tensor times(const at::Tensor& a, const at::Tensor& b) const {
    return narrow_ ? at::mm(transposed(b), transposed(a)) : at::mm(a, b);
  }

  at::Tensor sum_;
  bool narrow_ = false;
};

at::Tensor product(const at::Tensor& x, const at::Tensor& w) {
  SumOfProducts y;
  y.add(as_matrix(x), w);
  if (x.dim() == 2) return y.result();
  c10::DimVector sizes(x.sizes());
  sizes.back() = w.size(1);
  return reshaped(y.result(), sizes);
}

// What the gradient of x w needs: x for that of w, w for that of x. Slots that share a tensor add to one gradient.
struct Factors {
  Tensors x, w;                 // empty where nothing needs them
  std::vector<int> x_of, w_of;  // by slot
  size_t x_count = 0, w_count = 0;
  int64_t cost = 0;                    // of the product: see side_by_side
  std::vector<c10::DimVector> shapes;  // of x

  Tensors backward(const Tensors& gradients) const {
    Tensors g;
    for (const at::Tensor& t : gradients) g.push_back(as_matrix(t));
    Tensors result(x_count + w_count);
    // What adds to one gradient is one job, in the order of the slots. The longest come first: of the fewer gradients.
    const int of_w = x.empty() ? 0 : static_cast<int>(w_count), of_x = w.empty() ? 0 : static_cast<int>(x_count);
    const bool w_first = w_count <= x_count;
    const int first = w_first ? of_w : of_x;
    side_by_side(of_w + of_x, 2 * cost, [&](int job) {
      const at::AutoGradMode off(false);
      const bool is_w = (job < first) == w_first;
      const int mine = job < first ? job : job - first;
      SumOfProducts sum;
      for (size_t s = 0; s < g.size(); ++s) {
        if ((is_w ? w_of : x_of)[s] != mine) continue;
        is_w ? sum.add(transposed(as_matrix(x[x_of[s]])), g[s]) : sum.add(g[s], transposed(w[w_of[s]]));
      }
      if (!sum.empty())
        result[is_w ? x_count + mine : mine] = is_w ? sum.result() : reshaped(sum.result(), shapes[mine]);
    });
    return result;
  }
};

// The time of one core for all slots' products, in nanoseconds.
int64_t cost_of(const Prepared& call) {
  const at::Tensor &x = *call.local(0, 0), &w = *call.local(1, 0);
  return call.plan->runs * (2'000 + x.numel() * w.size(1) / 20);
}

// The turn of a weight's gradient, where it may wait for a sum of the backward pass (GradientOptions::overlap_sums).
std::optional<uint64_t> turn_of_weight(const Prepared& call) {
  if (!call.array[1]->weight || call.borrows || call.watched || !overlaps_sums(call.plan->mesh)) return std::nullopt;
  const uint64_t turn = current_tape()->turn_of_weights;
  return turn ? std::optional(turn) : std::nullopt;
}

// As one function of both operands; with a turn as two, of which that of x gets the gradient first and passes it on.
void record_product(Factors factors, const Tensors& x, const Tensors& w, Tensors& out, std::optional<uint64_t> turn) {
  factors.x_count = x.size(), factors.w_count = w.size();
  for (const at::Tensor& t : x) factors.shapes.emplace_back(t.sizes());
  const bool has_x = is_recorded(x[0]), has_w = is_recorded(w[0]);
  Tensors inputs = x;
  if (!turn || !has_x || !has_w) {
    if (has_x) factors.w = w;
    if (has_w) factors.x = x;
    inputs.append(w.begin(), w.end());
    return record_function("matmul", inputs, out,
                           [factors = std::move(factors)](Tensors gradients) { return factors.backward(gradients); });
  }
  Factors of_w = factors;
  factors.w = w, of_w.x = x;
  Tensors passed = out;
  record_function(
      "matmul", w, passed,
      [of_w = std::move(of_w)](const Tensors& gradients) {
        const Tensors both = of_w.backward(gradients);
        return Tensors(both.begin() + static_cast<ptrdiff_t>(of_w.x_count), both.end());
      },
      nullptr, turn);
  inputs.append(passed.begin(), passed.end());
  record_function("matmul", inputs, out, [factors = std::move(factors)](const Tensors& gradients) {
    Tensors both = factors.backward(gradients);
    both.resize(factors.x_count);
    both.append(gradients.begin(), gradients.end());
    return both;
  });
}

void record_product(const Prepared& call, Tensors& out) {
  const Tensors &x = call.array[0]->local, &w = call.array[1]->local;
  if (!is_recorded(x[0]) && !is_recorded(w[0])) return;
  record_product({.x_of = {call.index[0], call.index[0] + out.size()},
                  .w_of = {call.index[1], call.index[1] + out.size()},
                  .cost = cost_of(call)},
                 x, w, out, turn_of_weight(call));
}

class LaterMatmul : public LaterProduct {
 public:
  explicit LaterMatmul(const Prepared& call)
      : x_(1, *call.local(0, 0)), w_(1, *call.local(1, 0)), cost_(cost_of(call)), turn_(turn_of_weight(call)) {}

  at::Tensor place() const override { return at::empty({as_matrix(x_[0]).size(0), w_[0].size(1)}, x_[0].options()); }
  void compute(int64_t from, at::Tensor& rows) const override {
    const at::AutoGradMode off(false);
    at::mm_out(rows, as_matrix(x_[0]).narrow(0, from, rows.size(0)), w_[0]);
  }
  Tensors whole() const override {
    const at::AutoGradMode off(false);
    return recorded(product(x_[0], w_[0]));
  }
  Tensors recorded(const at::Tensor& place) const override {
    c10::DimVector sizes(x_[0].sizes());
    sizes.back() = w_[0].size(1);
    Tensors out(1, place.view(sizes));
    const at::AutoGradMode as_it_was(records_);
    if (is_recorded()) record_product({.x_of = {0}, .w_of = {0}, .cost = cost_}, x_, w_, out, turn_);
    return out;
  }
  bool is_recorded() const override { return records_ && (x_[0].requires_grad() || w_[0].requires_grad()); }

 private:
  const Tensors x_, w_;
  const int64_t cost_;
  const std::optional<uint64_t> turn_;
  const bool records_ = at::GradMode::is_enabled();
};

// What becomes a pending sum of processes is left to who asks for it: as a sum, it is computed in halves.
bool may_be_later(const Prepared& call) {
  const Plan& plan = *call.plan;
  return overlaps_sums(plan.mesh) && plan.out[0]->unreduced & plan.mesh->crossing() && !plan.is_padded &&
         !call.borrows && !call.watched && call.local(1, 0)->size(1) >= 16;  // less is another product: SumOfProducts
}

Array later_product(const Prepared& call) {
  const ArrayPtr result = begin_result(call);
  Details& details = result->detail();
  details.later = std::make_shared<LaterMatmul>(call);
  details.arrival = [later = details.later] { return later->whole(); };
  return Array(result);
}

Array matrix_product(const CallSite& site, const Array& x, const Array& w) {
  Prepared call;
  const Array* operands[] = {&x, &w};
  prepare(call, site, operands, 2);
  if (may_be_later(call)) return later_product(call);
  try {
    const WithoutTeams alone(call.plan->shares_the_cpu());
    Tensors out(call.plan->runs);
    side_by_side(call.plan->runs, cost_of(call), [&](int s) {
      const at::AutoGradMode off(false);
      out[s] = product(*call.local(0, s), *call.local(1, s));
    });
    record_product(call, out);
    return Array(finish(call, std::move(out)));
  } catch (const std::exception& error) {
    refuse(call, "matmul", error);
  }
}

Array promoted_product(const Operand& a, const Operand& b, DType dtype) {
  const Array x = astype(a, dtype), y = astype(b, dtype);
  return matmul({x, a.where()}, {y, b.where()});
}

Array product_of(const Operand& a, const Operand& b) {
  const Array &x = a.array(), &y = b.array();
  const Type &left = *materialized(x, "matmul").type, &right = *materialized(y, "matmul").type;
  if (left.shape.empty() || right.shape.empty())
    fail(ErrorKind::shape_mismatch, "matmul", "given {} and {}: a scalar has no matrix product. Use *.",
         x.type_string(), y.type_string());
  if (left.dtype != right.dtype) return promoted_product(a, b, promote(left.dtype, right.dtype));
  if (left.dtype == boolean) return not_equal(Operand(promoted_product(a, b, int32), a.where()), 0);
  const CallSite site{.operation = matmul_op, .where = a.where()};
  if (left.shape.size() > 1 && right.shape.size() == 2 && !is_nested()) return matrix_product(site, x, y);
  return run(site, {&x, &y}, [](Locals t, const BlockContext&) { return at::matmul(t[0], t[1]); });
}

}  // namespace

Array matmul(Operand a, Operand b, const ResultOptions& options) {
  return placed_result(product_of(a, b), options, "matmul", a.where());
}

// ---- products over other dims

namespace {

// The dims of one operand, counted from the front. Error (bad_argument): one twice.
Dims checked_dims(const char* verb, const Array& x, const Dims& contract, const Dims& batch) {
  Dims dims = contract;
  dims.insert(dims.end(), batch.begin(), batch.end());
  for (int& d : dims) d = checked_dim(verb, x, d);
  Dims sorted = dims;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
    fail(ErrorKind::bad_argument, verb, "a dim of {} given twice.", x.type_string());
  return dims;
}

std::string first_letters(size_t n, char first) {
  std::string letters;
  for (size_t i = 0; i < n; ++i) letters += static_cast<char>(first + i);
  return letters;
}

std::string without(std::string letters, const std::string& others) {
  std::erase_if(letters, [&](char c) { return others.find(c) != std::string::npos; });
  return letters;
}

void check_pairs(const char* verb, const Array& a, const Array& b, const Dims& left, const Dims& right) {
  if (left.size() != right.size())
    fail(ErrorKind::bad_argument, verb, "{} dims of {} and {} of {}, expected as many.", left.size(), a.type_string(),
         right.size(), b.type_string());
  for (size_t i = 0; i < left.size(); ++i)
    if (a.shape(left[i]) != b.shape(right[i]))
      fail(ErrorKind::shape_mismatch, verb, "dim {} of {} and dim {} of {} are not of one size.", left[i],
           a.type_string(), right[i], b.type_string());
}

Array general_product(const char* verb, const Operand& a, const Operand& b, const DotDims& dims,
                      const ResultOptions& options) {
  const Array &x = a.array(), &y = b.array();
  materialized(x, verb), materialized(y, verb);
  const Dims left = checked_dims(verb, x, dims.contract.first, dims.batch.first);
  const Dims right = checked_dims(verb, y, dims.contract.second, dims.batch.second);
  check_pairs(verb, x, y, dims.contract.first, dims.contract.second);
  check_pairs(verb, x, y, dims.batch.first, dims.batch.second);
  const std::string in = first_letters(x.ndim(), 'a');
  std::string other = first_letters(y.ndim(), 'A'), summed, batch;
  for (size_t i = 0; i < left.size(); ++i) {
    other[right[i]] = in[left[i]];
    (i < dims.contract.first.size() ? summed : batch) += in[left[i]];
  }
  const std::string equation =
      fmt::format("{},{}->{}{}{}", in, other, batch, without(in, summed + batch), without(other, summed + batch));
  return einsum(equation, {x, y}, options, a.where());
}

bool is_scalar(const char* verb, const Operand& x) { return materialized(x.array(), verb).type->shape.empty(); }

}  // namespace

Array dot_general(Operand a, Operand b, const DotDims& dims, const ResultOptions& options) {
  return general_product("dot_general", a, b, dims, options);
}

Array tensordot(Operand a, Operand b, int dims, const ResultOptions& options) {
  const int last = static_cast<int>(materialized(a.array(), "tensordot").type->shape.size());
  if (dims < 0 || dims > std::min(last, b.array().ndim()))
    fail(ErrorKind::bad_argument, "tensordot", "over {} dims of {} and {}.", dims, a.array().type_string(),
         b.array().type_string());
  DotDims pairs;
  for (int i = 0; i < dims; ++i) pairs.contract.first.push_back(last - dims + i), pairs.contract.second.push_back(i);
  return general_product("tensordot", a, b, pairs, options);
}

Array tensordot(Operand a, Operand b, const std::pair<Dims, Dims>& dims, const ResultOptions& options) {
  return general_product("tensordot", a, b, {.contract = dims}, options);
}

Array dot(Operand a, Operand b, const ResultOptions& options) {
  if (is_scalar("dot", a) || is_scalar("dot", b)) return placed_result(a * b, options, "dot", a.where());
  return general_product("dot", a, b, {.contract = {{-1}, {b.array().ndim() > 1 ? -2 : -1}}}, options);
}

Array inner(Operand a, Operand b, const ResultOptions& options) {
  if (is_scalar("inner", a) || is_scalar("inner", b)) return placed_result(a * b, options, "inner", a.where());
  return general_product("inner", a, b, {.contract = {{-1}, {-1}}}, options);
}

Array vdot(Operand a, Operand b, const ResultOptions& options) {
  const Array &x = a.array(), &y = b.array();
  if (materialized(x, "vdot").type->shape != materialized(y, "vdot").type->shape) {
    const Array u = reshape(a, {-1}), v = reshape(b, {-1});
    return general_product("vdot", {u, a.where()}, {v, b.where()}, {.contract = {{0}, {0}}}, options);
  }
  const Dims all = consecutive_dims(x.ndim());
  return general_product("vdot", a, b, {.contract = {all, all}}, options);
}

Array outer(Operand a, Operand b, const ResultOptions& options) {
  const Type &left = *materialized(a.array(), "outer").type, &right = *materialized(b.array(), "outer").type;
  if (left.shape.size() == 1 && right.shape.size() == 1 && left.dtype == right.dtype)
    return placed_result(run({.operation = outer_op, .where = a.where()}, {&a.array(), &b.array()},
                             [](Locals t, const BlockContext&) { return at::outer(t[0], t[1]); }),
                         options, "outer", a.where());
  const Array column = reshape(a, {-1, 1}), row = reshape(b, {1, -1});
  return placed_result(Operand(column, a.where()) * Operand(row, b.where()), options, "outer", a.where());
}

}  // namespace tessera
