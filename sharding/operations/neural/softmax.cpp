// softmax, log_softmax and logsumexp, with two small all_reduces over sharded dimensions.
#include <ATen/ATen.h>

#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/neural/normalization.h"
#include "sharding/operations/reduce/reduction_dims.h"
#include "sharding/operations/reduce/reductions.h"
#include "sharding/propagation/sharded_reduction.h"

namespace tessera {

using namespace detail;

namespace {

// Returns the rule of an operation along one dimension, the attribute.
ShardingRule along_rule(const Attributes& attributes, const OperandTypes& operands) {
  RuleDims dims = numbered_factors(operands[0]->shape.size());
  dims[attributes[0]] = reduced_inside("d");
  return {{dims}, {dims}};
}

const Operation softmax_op{"softmax", along_rule, Linearity::nonlinear, Padded::lowest};
const Operation log_softmax_op{"log_softmax", along_rule, Linearity::nonlinear, Padded::lowest};
const Operation logsumexp_op{"logsumexp", inside_rule, Linearity::nonlinear, Padded::lowest};

// exp(x - most), whose sum over the devices is `total`; most and total keep the reduced dimensions.
struct Exponentials {
  Tensors exp, most, total;
};

Exponentials exponentials(const ShardedReduction& reduction, const Tensors& x, at::IntArrayRef dims, bool finite) {
  Exponentials e;
  e.most =
      widened(reduction.combine(for_each(x, [&](const at::Tensor& t) { return at::amax(t, dims, /*keepdim=*/true); }),
                                Collective::all_reduce_max));
  if (finite)
    e.most = for_each(e.most, [](const at::Tensor& t) { return t.masked_fill(t.isfinite().logical_not(), 0); });
  e.exp = for_each(widened(x), e.most, [](const at::Tensor& t, const at::Tensor& m) { return (t - m).exp_(); });
  e.total = reduction.combine(for_each(e.exp, [&](const at::Tensor& t) { return at::sum(t, dims, true); }),
                              Collective::all_reduce);
  return e;
}

// Handles an empty tensor, which has no maximum and nothing to divide.
Exponentials exponentials_of_softmax(const ShardedReduction& reduction, const Tensors& x, int64_t dim) {
  if (x[0].numel() == 0) return {widened(x), widened(x), widened(x)};
  return exponentials(reduction, x, dim, /*finite=*/false);
}

Tensors sums_in_backward(const ShardedReduction& reduction, const Tensors& parts, int64_t dim) {
  return reduction.combine(for_each(parts, [&](const at::Tensor& t) { return at::sum(t, dim, /*keepdim=*/true); }),
                           Collective::all_reduce, /*in_backward_pass=*/true);
}

at::Tensor elementwise_product(const at::Tensor& a, const at::Tensor& b) { return a * b; }

// Computes softmax: y = e / s. Backward: d x = y (g - sum(g y)).
Across softmax_across(const Prepared& call, const ShardedReduction& reduction, int64_t dim) {
  const Tensors x = locals(call, 0);
  const Exponentials e = exponentials_of_softmax(reduction, x, dim);
  const auto type = x[0].scalar_type();
  const Tensors y = for_each(e.exp, e.total, [](const at::Tensor& t, const at::Tensor& sum) { return t / sum; });
  return {for_each(y, [&](const at::Tensor& t) { return t.to(type); }), [=](const Tensors& gradients) {
            const Tensors products = for_each(gradients, y, elementwise_product);
            const Tensors sums = sums_in_backward(reduction, products, dim);
            Tensors result;
            for (size_t s = 0; s < y.size(); ++s) result.push_back((products[s] - y[s] * sums[s]).to(type));
            return result;
          }};
}

// Computes log_softmax: y = x - most - log s. Backward: d x = g - exp(y) sum(g).
Across log_softmax_across(const Prepared& call, const ShardedReduction& reduction, int64_t dim) {
  const Tensors x = locals(call, 0);
  const Exponentials e = exponentials_of_softmax(reduction, x, dim);
  const auto type = x[0].scalar_type();
  Tensors y;
  for (size_t s = 0; s < x.size(); ++s) y.push_back((x[s] - e.most[s]).sub_(e.total[s].log()).to(type));
  return {y, [=](const Tensors& gradients) {
            const Tensors sums = sums_in_backward(reduction, widened(gradients), dim);
            Tensors result;
            for (size_t s = 0; s < y.size(); ++s)
              result.push_back((gradients[s] - e.exp[s] / e.total[s] * sums[s]).to(type));
            return result;
          }};
}

using AcrossDim = Across (*)(const Prepared&, const ShardedReduction&, int64_t dim);

template <class Whole>
Array along(const Operation& op, const Operand& x, int dim, Whole whole, AcrossDim across) {
  const Array a = as_floating(x);
  dim = checked_dim(op.name, a, dim);
  return run_sharded_reduction(
      {.operation = op, .attributes = {dim}, .where = x.where()}, {&a},
      [&](Locals t, const BlockContext&) { return whole(t[0], dim); },
      [&](const Prepared& call, const ShardedReduction& reduction) { return across(call, reduction, dim); });
}

}  // namespace

Array softmax(Operand x, int dim) {
  return along(
      softmax_op, x, dim, [](const at::Tensor& t, int64_t d) { return at::softmax(t, d); }, softmax_across);
}

Array log_softmax(Operand x, int dim) {
  return along(
      log_softmax_op, x, dim,
      [](const at::Tensor& t, int64_t d) {
        return at::log_softmax(float16_widened_in_graph(t), d).to(t.scalar_type());
      },
      log_softmax_across);
}

namespace {

at::Tensor without_dims(const at::Tensor& t, const Reduction& r) { return r.keepdims ? t : t.squeeze(r.dims); }

Across logsumexp_across(const Prepared& call, const ShardedReduction& reduction, const Reduction& r) {
  const Tensors x = locals(call, 0);
  const Exponentials e = exponentials(reduction, x, r.dims, /*finite=*/true);
  const auto type = x[0].scalar_type();
  const Tensors logs =
      for_each(e.total, e.most, [](const at::Tensor& sum, const at::Tensor& most) { return sum.log() + most; });
  return {for_each(logs, [&](const at::Tensor& t) { return without_dims(t, r).to(type); }),
          [=](const Tensors& gradients) {
            Tensors result;
            for (size_t s = 0; s < x.size(); ++s)
              result.push_back(((x[s] - logs[s]).exp_() * with_dims(gradients[s], r)).to(type));
            return result;
          }};
}

}  // namespace

Array logsumexp(Operand x, Dims dims, bool keepdims) {
  const Array a = as_floating(x);
  const Reduction r = checked_reduction("logsumexp", a, dims, keepdims);
  if (elements_of(a, r) == 0) {
    const Array nothing = sum({a, x.where()}, dims, keepdims);
    return log({nothing, x.where()});
  }
  return reduce_inside(
      logsumexp_op, {a, x.where()}, r,
      [&](const at::Tensor& t) { return at::logsumexp(widened_in_graph(t), r.dims, keepdims).to(t.scalar_type()); },
      [&](const Prepared& call, const ShardedReduction& reduction) { return logsumexp_across(call, reduction, r); });
}

}  // namespace tessera
