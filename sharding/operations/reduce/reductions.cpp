// Sums, means, and reductions made from sums: variances, norms.
#include "sharding/operations/reduce/reductions.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>

#include <algorithm>

#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/reduce/reduction_dims.h"

namespace tessera {

using namespace detail;

namespace {

const Operation sum_op{"sum", pending_rule, Linearity::additive, Padded::zeros};
const Operation mean_op{"mean", pending_rule, Linearity::additive, Padded::zeros};
const Operation count_nonzero_op{"count_nonzero", pending_rule, Linearity::nonlinear, Padded::zeros};
const Operation var_op{"var", inside_rule, Linearity::nonlinear, Padded::kept};
const Operation norm_op{"norm", inside_rule, Linearity::nonlinear, Padded::zeros};

}  // namespace

Array sum(Operand x, Dims dims, bool keepdims) {
  const Reduction r = checked_reduction("sum", x.array(), dims, keepdims);
  const DType dtype = x.array().dtype(), out = is_floating(dtype) || dtype == int64 ? dtype : int32;
  if (r.dims.empty()) return astype(x, out);
  return run({.operation = sum_op, .attributes = r.attributes, .out_dtype = out, .where = x.where()}, {&x.array()},
             [&](Locals t, const BlockContext&) { return at::sum(t[0], r.dims, keepdims, scalar_type(out)); });
}

Array mean(Operand x, Dims dims, bool keepdims) {
  const Array a = as_floating(x);
  const Reduction r = checked_reduction("mean", a, dims, keepdims);
  if (r.dims.empty()) return a;
  const double elements = static_cast<double>(elements_of(a, r));
  return run({.operation = mean_op, .attributes = r.attributes, .where = x.where()}, {&a},
             [&](Locals t, const BlockContext& block) {
               if (!is_divided(block.plan())) return at::mean(t[0], r.dims, keepdims);
               const at::ScalarType type = t[0].scalar_type();
               return at::sum(t[0], r.dims, keepdims, at::toOpMathType(type)).div(elements).to(type);
             });
}

Array count_nonzero(Operand x, Dims dims, bool keepdims) {
  const Reduction r = checked_reduction("count_nonzero", x.array(), dims, keepdims);
  return run({.operation = count_nonzero_op, .attributes = r.attributes, .out_dtype = int32, .where = x.where()},
             {&x.array()},
             [&](Locals t, const BlockContext&) { return at::sum(t[0].ne(0), r.dims, keepdims, at::kInt); });
}

namespace {

// Computes the sum of squared distances from the global mean, and from it the variance. The gradient needs only x -
// mean, since the distances add up to zero.
Across var_across(const Prepared& call, const ShardedReduction& reduction, const Reduction& r, double elements,
                  double divisor) {
  const Tensors x = locals(call, 0), wide = widened(x);
  const Tensors total =
      reduction.combine(for_each(wide, [&](const at::Tensor& t) { return at::sum(t, r.dims, /*keepdim=*/true); }),
                        Collective::all_reduce);
  const Tensors centered =
      for_each(wide, total, [&](const at::Tensor& t, const at::Tensor& sum) { return t - sum / elements; });
  const Tensors squares =
      reduction.combine(for_each(centered, [&](const at::Tensor& t) { return at::sum(t * t, r.dims, r.keepdims); }),
                        Collective::all_reduce);
  const auto type = x[0].scalar_type();
  return {for_each(squares, [&](const at::Tensor& t) { return t.div(divisor).to(type); }),
          [=](const Tensors& gradients) {
            return for_each(centered, gradients, [&](const at::Tensor& t, const at::Tensor& g) {
              return (t * with_dims(g, r)).mul_(2 / divisor).to(type);
            });
          }};
}

}  // namespace

Array var(Operand x, Dims dims, bool keepdims, int ddof) {
  const Array a = as_floating(x);
  const Reduction r = checked_reduction("var", a, dims, keepdims);
  const double elements = static_cast<double>(elements_of(a, r)), left = elements - ddof;
  const double divisor = left > 0 ? left : std::numeric_limits<double>::quiet_NaN();
  return reduce_inside(
      var_op, {a, x.where()}, r,
      [&](const at::Tensor& t) {
        return left > 0 ? at::var(t, r.dims, at::Scalar(ddof), keepdims) : at::sum(t, r.dims, keepdims) * divisor;
      },
      [&](const Prepared& call, const ShardedReduction& reduction) {
        return var_across(call, reduction, r, elements, divisor);
      });
}

Array std(Operand x, Dims dims, bool keepdims, int ddof) {
  return sqrt({var(x, std::move(dims), keepdims, ddof), x.where()});
}

namespace {

Across norm_across(const Prepared& call, const ShardedReduction& reduction, const Reduction& r) {
  const Tensors x = locals(call, 0);
  const Tensors squares =
      reduction.combine(for_each(widened(x), [&](const at::Tensor& t) { return at::sum(t * t, r.dims, r.keepdims); }),
                        Collective::all_reduce);
  const auto type = x[0].scalar_type();
  const Tensors norms = for_each(squares, [&](const at::Tensor& t) { return t.sqrt(); });
  return {for_each(norms, [&](const at::Tensor& t) { return t.to(type); }), [=](const Tensors& gradients) {
            const Tensors scales = for_each(
                gradients, norms, [&](const at::Tensor& g, const at::Tensor& n) { return with_dims(g / n, r); });
            return for_each(x, scales, [&](const at::Tensor& t, const at::Tensor& s) { return (t * s).to(type); });
          }};
}

}  // namespace

Array norm(Operand x, Dims dims, bool keepdims) {
  const Array a = as_floating(x);
  const Reduction r = checked_reduction("norm", a, dims, keepdims);
  return reduce_inside(
      norm_op, {a, x.where()}, r,
      [&](const at::Tensor& t) {
        const auto type = t.scalar_type();
        const at::Tensor wide = at::isReducedFloatingType(type) ? t.to(at::kFloat) : t;
        return at::sqrt(at::sum(wide * wide, r.dims, keepdims)).to(type);
      },
      [&](const Prepared& call, const ShardedReduction& reduction) { return norm_across(call, reduction, r); });
}

}  // namespace tessera
