// Normalization over the last dimension: one kernel if it is not sharded, sums across devices if it is.
#include "sharding/operations/neural/normalization.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

#include "sharding/array/tape_state.h"
#include "sharding/base/fail.h"
#include "sharding/kernels/tensors.h"
#include "sharding/operations/argument_checks.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/propagation/run.h"
#include "sharding/propagation/sharded_reduction.h"

namespace tessera {

using namespace detail;

namespace {

const Operation layer_norm_op{"layer_norm", "... (d) -> ... (d)", Linearity::nonlinear, Padded::kept};
const Operation scaled_layer_norm_op{"layer_norm", "... (d), (d), (d) -> ... (d)", Linearity::nonlinear, Padded::kept};
const Operation rms_norm_op{"rms_norm", "... (d) -> ... (d)", Linearity::nonlinear, Padded::kept};
const Operation scaled_rms_norm_op{"rms_norm", "... (d), (d) -> ... (d)", Linearity::nonlinear, Padded::kept};

void check_eps(const char* verb, double eps) {
  if (!(eps >= 0 && std::isfinite(eps)))
    fail(ErrorKind::invalid_argument, verb, "eps = {} given, expected a number of 0 or more.", eps);
}

bool are_in(DType dtype, std::initializer_list<const Array*> operands) {
  return std::all_of(operands.begin(), operands.end(), [&](const Array* x) { return x->dtype() == dtype; });
}

// Returns true if x is replicated along the dimension and `scale` is sharded over axes that x does not use. Then the
// product is sharded over them, and x need not be resharded.
bool shards_further(const Array& scale, const Array& x) {
  const Type *given = x.impl()->type, *wanted = scale.impl()->type;
  if (!wanted->sharded) return false;
  const bool whole = !given->mesh || given->dims.empty() || given->dims.back().empty();
  return whole && (wanted->sharded & ~given->own()) != 0;
}

// Returns true if there are rows of padding without a value: their zeros have variance 0, and eps is 0. The gradient of
// a scale, a sum over all rows, must not include them.
bool has_rows_without_value(const Array& x, double eps) { return eps == 0 && x.impl()->type->padded; }

// Sums over all dimensions but the last.
at::Tensor over_rows(const at::Tensor& t) { return t.reshape({-1, t.size(-1)}).sum(0); }

// ---- layer_norm

// The standardized rows: normalized = (x - mean) r. The backward pass needs this and scale, which may be undefined.
struct Standardized {
  at::Tensor normalized, r, scale;
};

at::Tensor sum_last(const at::Tensor& t) { return at::sum(t, -1, /*keepdim=*/true); }

std::vector<Standardized> standardized(const Prepared& call, const ShardedReduction& reduction, double size,
                                       double eps) {
  const Tensors x = widened(locals(call, 0)), total = reduction.combine(for_each(x, sum_last), Collective::all_reduce);
  const Tensors centered =
      for_each(x, total, [&](const at::Tensor& t, const at::Tensor& sum) { return t - sum / size; });
  const Tensors squares = reduction.combine(for_each(centered, [](const at::Tensor& t) { return sum_last(t * t); }),
                                            Collective::all_reduce);
  std::vector<Standardized> blocks;
  for (int s = 0; s < call.plan->runs; ++s) {
    const at::Tensor r = (squares[s] / size).add_(eps).rsqrt_();
    blocks.push_back({centered[s] * r, r, call.operands == 1 ? at::Tensor() : widened(*call.local(1, s))});
  }
  return blocks;
}

at::Tensor times_scale(const at::Tensor& t, const at::Tensor& scale) { return scale.defined() ? t * scale : t; }

// Returns the gradients of layer_norm. With g' = g scale: d x = r (g' - mean(g') - normalized mean(g' normalized)), d
// scale = sum(g normalized), d bias = sum(g).
Tensors layer_norm_gradients(const ShardedReduction& reduction, const std::vector<Standardized>& blocks,
                             const Tensors& gradients, double size) {
  Tensors scaled, sums;
  for (size_t s = 0; s < blocks.size(); ++s) {
    scaled.push_back(times_scale(widened(gradients[s]), blocks[s].scale));
    sums.push_back(at::stack({sum_last(scaled[s]), sum_last(scaled[s] * blocks[s].normalized)}));
  }
  sums = reduction.combine(sums, Collective::all_reduce, /*in_backward_pass=*/true);
  Tensors x, scale, bias;
  for (size_t s = 0; s < blocks.size(); ++s) {
    const Standardized& b = blocks[s];
    x.push_back((scaled[s] - (sums[s][0] + b.normalized * sums[s][1]) / size).mul_(b.r));
    if (!b.scale.defined()) continue;
    scale.push_back(over_rows(widened(gradients[s]) * b.normalized));
    bias.push_back(over_rows(widened(gradients[s])));
  }
  x.append(scale.begin(), scale.end());
  x.append(bias.begin(), bias.end());
  return x;
}

at::Tensor in_type(const at::Tensor& t, at::ScalarType type) { return t.scalar_type() == type ? t : t.to(type); }

// Converts each gradient to the element type of its local tensor.
Tensors in_types(Tensors gradients, const std::vector<at::ScalarType>& types) {
  for (size_t i = 0; i < types.size(); ++i) gradients[i] = in_type(gradients[i], types[i]);
  return gradients;
}

std::vector<at::ScalarType> types_of(const Prepared& call) {
  std::vector<at::ScalarType> types;
  for (int i = 0; i < call.operands; ++i)
    for (const at::Tensor& t : locals(call, i)) types.push_back(t.scalar_type());
  return types;
}

Across layer_norm_across(const Prepared& call, const ShardedReduction& reduction, double eps) {
  const double size = static_cast<double>(BlockContext(*call.plan, 0).size("d"));
  const std::vector<Standardized> blocks = standardized(call, reduction, size, eps);
  const std::vector<at::ScalarType> types = types_of(call);
  Tensors results;
  for (size_t s = 0; s < blocks.size(); ++s) {
    at::Tensor y = times_scale(blocks[s].normalized, blocks[s].scale);
    if (call.operands == 3) y = y + *call.local(2, static_cast<int>(s));
    results.push_back(y.to(types[s]));
  }
  return {results, [=](const Tensors& gradients) {
            return in_types(layer_norm_gradients(reduction, blocks, gradients, size), types);
          }};
}

}  // namespace

Array layer_norm(Operand x, double eps) {
  check_eps("layer_norm", eps);
  check_floating("layer_norm", x.array(), "x");
  return run_sharded_reduction(
      {.operation = layer_norm_op, .where = x.where()}, {&x.array()},
      [eps](Locals t, const BlockContext&) { return at::layer_norm(t[0], {t[0].size(-1)}, {}, {}, eps); },
      [eps](const Prepared& call, const ShardedReduction& reduction) {
        return layer_norm_across(call, reduction, eps);
      });
}

Array layer_norm(Operand x, const Array& scale, const Array& bias, double eps) {
  check_eps("layer_norm", eps);
  check_floating("layer_norm", x.array(), "x");
  check_floating("layer_norm", scale, "scale");
  check_floating("layer_norm", bias, "bias");
  const DType common = promote(promote(x.array().dtype(), scale.dtype()), bias.dtype());
  if (!are_in(common, {&x.array(), &scale, &bias})) {
    const Array in = astype(x, common);
    return layer_norm({in, x.where()}, astype({scale, x.where()}, common), astype({bias, x.where()}, common), eps);
  }
  if (shards_further(scale, x.array()) || shards_further(bias, x.array()) || has_rows_without_value(x.array(), eps)) {
    const Array scaled = Operand{layer_norm(x, eps), x.where()} * Operand{scale, x.where()};
    return Operand{scaled, x.where()} + Operand{bias, x.where()};
  }
  return run_sharded_reduction(
      {.operation = scaled_layer_norm_op, .where = x.where()}, {&x.array(), &scale, &bias},
      [eps](Locals t, const BlockContext&) { return at::layer_norm(t[0], {t[0].size(-1)}, t[1], t[2], eps); },
      [eps](const Prepared& call, const ShardedReduction& reduction) {
        return layer_norm_across(call, reduction, eps);
      });
}

// ---- rms_norm

namespace {

at::Tensor inverse_root(const at::Tensor& squares, double size, double eps) {
  return (squares / size).add_(eps).rsqrt_();
}
at::Tensor normalized(const at::Tensor& x, const at::Tensor& r, const at::Tensor& scale) {
  return scale.defined() ? (x * r).mul_(scale) : x * r;
}

// x and scale (or none) in the computing type, and r = 1 / sqrt(mean(x^2) + eps): everything that the backward pass
// needs.
struct RootMeanSquare {
  at::Tensor x, scale, r;

  at::Tensor squares() const { return sum_last(x * x); }
  void set(const at::Tensor& all_squares, double size, double eps) { r = inverse_root(all_squares, size, eps); }
  at::Tensor result() const { return normalized(x, r, scale); }
};

// The partial gradient of one block. `dot` is this block's contribution to sum(g scale x r).
struct RmsGradient {
  at::Tensor g, normalized, product, dot;
};

RmsGradient begin_gradient(const RootMeanSquare& n, const at::Tensor& gradient) {
  RmsGradient b{widened(gradient), n.x * n.r, {}, {}};
  b.product = b.g * b.normalized;
  b.dot = n.scale.defined() ? at::matmul(b.product, n.scale).unsqueeze(-1) : sum_last(b.product);
  return b;
}

// Completes the gradients of one block: y = x r scale, so d x = r (g scale - x r mean(g scale x r)) and d scale = sum(g
// x r).
Tensors end_gradient(const RootMeanSquare& n, RmsGradient& b, const at::Tensor& all_dots, double size) {
  at::Tensor x = n.scale.defined() ? b.g * n.scale : b.g.clone();
  Tensors gradients{x.sub_(b.normalized.mul_(all_dots / size)).mul_(n.r)};
  if (n.scale.defined()) gradients.push_back(over_rows(b.product));
  return gradients;
}

// Computes rms_norm on one device. LibTorch has kernels for GPUs, but none for CPUs; a composition of its operations is
// slower and keeps one more activation.
at::Tensor local_rms_norm(const at::Tensor& x, const at::Tensor& scale, double eps) {
  if (is_nested()) {
    const at::Tensor wide = widened_in_graph(x);
    const at::Tensor root = at::rsqrt(at::mean(wide * wide, -1, /*keepdim=*/true) + eps);
    return in_type(times_scale(wide * root, scale), x.scalar_type());
  }
  if (is_on_accelerator(x)) {
    const auto weight = scale.defined() ? std::optional(scale) : std::nullopt;
    return at::rms_norm(x, {x.size(-1)}, weight, eps);
  }
  const double size = static_cast<double>(x.size(-1));
  const bool is_plain = !is_recorded(x) && !(scale.defined() && is_recorded(scale));
  if (is_plain && at::toOpMathType(x.scalar_type()) == x.scalar_type())
    return normalized(x, inverse_root(sum_last(x * x), size, eps), scale);
  RootMeanSquare n{widened(x), scale.defined() ? widened(scale) : scale, {}};
  Tensors out;
  {
    at::AutoGradMode off(false);
    n.set(n.squares(), size, eps);
    out.push_back(in_type(n.result(), x.scalar_type()));
  }
  if (is_plain) return std::move(out[0]);
  Tensors inputs{x};
  if (scale.defined()) inputs.push_back(scale);
  std::vector<at::ScalarType> types;
  for (const at::Tensor& t : inputs) types.push_back(t.scalar_type());
  record_function("rms_norm", inputs, out, [n, size, types](const Tensors& gradients) {
    RmsGradient b = begin_gradient(n, gradients[0]);
    return in_types(end_gradient(n, b, b.dot, size), types);
  });
  return out[0];
}

Tensors rms_norm_gradients(const ShardedReduction& reduction, const std::vector<RootMeanSquare>& blocks,
                           const Tensors& gradients, double size) {
  std::vector<RmsGradient> begun;
  Tensors dots, x, scale;
  for (size_t s = 0; s < blocks.size(); ++s) {
    begun.push_back(begin_gradient(blocks[s], gradients[s]));
    dots.push_back(begun[s].dot);
  }
  dots = reduction.combine(dots, Collective::all_reduce, /*in_backward_pass=*/true);
  for (size_t s = 0; s < blocks.size(); ++s) {
    const Tensors both = end_gradient(blocks[s], begun[s], dots[s], size);
    x.push_back(both[0]);
    if (both.size() > 1) scale.push_back(both[1]);
  }
  x.append(scale.begin(), scale.end());
  return x;
}

Across rms_norm_across(const Prepared& call, const ShardedReduction& reduction, double eps) {
  const double size = static_cast<double>(BlockContext(*call.plan, 0).size("d"));
  const std::vector<at::ScalarType> types = types_of(call);
  std::vector<RootMeanSquare> blocks;
  Tensors squares, results;
  for (int s = 0; s < call.plan->runs; ++s) {
    blocks.push_back({widened(*call.local(0, s)), call.operands == 1 ? at::Tensor() : widened(*call.local(1, s)), {}});
    squares.push_back(blocks[s].squares());
  }
  squares = reduction.combine(squares, Collective::all_reduce);
  for (size_t s = 0; s < blocks.size(); ++s) {
    blocks[s].set(squares[s], size, eps);
    results.push_back(blocks[s].result().to(types[s]));
  }
  return {results, [=](const Tensors& gradients) {
            return in_types(rms_norm_gradients(reduction, blocks, gradients, size), types);
          }};
}

}  // namespace

Array rms_norm(Operand x, double eps) {
  check_eps("rms_norm", eps);
  check_floating("rms_norm", x.array(), "x");
  return run_sharded_reduction(
      {.operation = rms_norm_op, .where = x.where()}, {&x.array()},
      [eps](Locals t, const BlockContext&) { return local_rms_norm(t[0], {}, eps); },
      [eps](const Prepared& call, const ShardedReduction& reduction) { return rms_norm_across(call, reduction, eps); });
}

Array rms_norm(Operand x, const Array& scale, double eps) {
  check_eps("rms_norm", eps);
  check_floating("rms_norm", x.array(), "x");
  check_floating("rms_norm", scale, "scale");
  const DType common = promote(x.array().dtype(), scale.dtype());
  if (!are_in(common, {&x.array(), &scale})) {
    const Array in = astype(x, common);
    return rms_norm({in, x.where()}, astype({scale, x.where()}, common), eps);
  }
  if (shards_further(scale, x.array()) || has_rows_without_value(x.array(), eps))
    return Operand{rms_norm(x, eps), x.where()} * Operand{scale, x.where()};
  return run_sharded_reduction(
      {.operation = scaled_rms_norm_op, .where = x.where()}, {&x.array(), &scale},
      [eps](Locals t, const BlockContext&) { return local_rms_norm(t[0], t[1], eps); },
      [eps](const Prepared& call, const ShardedReduction& reduction) { return rms_norm_across(call, reduction, eps); });
}

}  // namespace tessera
