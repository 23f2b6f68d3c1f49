// Normalization and cross-entropy.
#include "sharding/neural.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "sharding/autograd.h"
#include "sharding/operations_common.h"
#include "sharding/redistribute.h"
#include "sharding/run.h"
#include "sharding/tape_state.h"

namespace tessera {

using namespace detail;

namespace {

const Operation layer_norm_op{"layer_norm", "... [d], [d], [d] -> ... [d]", Linearity::nonlinear};
const Operation rms_norm_op{"rms_norm", "... [d], [d] -> ... [d]", Linearity::nonlinear};
const Operation cross_entropy_op{"cross_entropy", "... (v), ... -> ", Linearity::nonlinear};

}  // namespace

Array layer_norm(Operand x, const Array& scale, const Array& bias, double eps) {
  return run({.operation = layer_norm_op, .where = x.where()}, {&x.array(), &scale, &bias},
             [eps](Locals t, const Where&) { return at::layer_norm(t[0], {t[0].size(-1)}, t[1], t[2], eps); });
}

namespace {

// x and scale in the type to compute in, and r = 1 / sqrt(mean(x^2) + eps): all that the backward pass needs.
struct RootMeanSquare {
  at::Tensor x, scale, r;
};

at::Tensor widened(const at::Tensor& t) { return t.detach().to(at::toOpMathType(t.scalar_type())); }

// y = x r scale, so d x = r (g scale - x r mean(g scale x r)) and d scale = sum(g x r).
Tensors rms_norm_gradients(const RootMeanSquare& n, const at::Tensor& gradient) {
  const int64_t size = n.x.size(-1);
  const at::Tensor g = widened(gradient), normalized = n.x * n.r, product = g * normalized;
  const at::Tensor mean = at::matmul(product, n.scale).unsqueeze(-1).div_(size);
  return {(g * n.scale).sub_(normalized.mul_(mean)).mul_(n.r), product.reshape({-1, size}).sum(0)};
}

// LibTorch has no kernel of it for CPUs; composed of its operations it takes longer and keeps one activation more.
at::Tensor local_rms_norm(const at::Tensor& x, const at::Tensor& scale, double eps) {
  if (is_nested()) return x * at::rsqrt(at::mean(x * x, -1, /*keepdim=*/true) + eps) * scale;
  Tensors out;
  RootMeanSquare n{widened(x), widened(scale), {}};
  {
    at::AutoGradMode off(false);
    n.r = at::mean(n.x * n.x, -1, /*keepdim=*/true).add_(eps).rsqrt_();
    out.push_back((n.x * n.r).mul_(n.scale).to(x.scalar_type()));
  }
  record_function("rms_norm", {x, scale}, out, [n, types = std::pair(x.scalar_type(), scale.scalar_type())](Tensors g) {
    Tensors gradients = rms_norm_gradients(n, g[0]);
    return Tensors{gradients[0].to(types.first), gradients[1].to(types.second)};
  });
  return out[0];
}

void check_floating(const char* verb, const Array& x, const char* what) {
  materialized(x, verb);
  if (!is_floating(x.dtype()))
    fail(ErrorKind::dtype_mismatch, verb, fmt::format("{} is {}, expected a floating type.", what, x.type_string()));
}

}  // namespace

Array rms_norm(Operand x, const Array& scale, double eps) {
  check_floating("rms_norm", x.array(), "x");
  check_floating("rms_norm", scale, "scale");
  return run({.operation = rms_norm_op, .where = x.where()}, {&x.array(), &scale},
             [eps](Locals t, const Where&) { return local_rms_norm(t[0], t[1], eps); });
}

// ---- cross-entropy

namespace {

// What the backward pass needs of one block of logits.
struct LogitsBlock {
  at::Tensor exponentials;  // exp(logits - max)
  at::Tensor labels, here;  // the label's column in this block, and whether it lies in it
};

LogitsBlock read_labels(const at::Tensor& logits, const at::Tensor& labels, int64_t offset) {
  const at::Tensor column = labels - offset;
  const at::Tensor here = (column >= 0).logical_and_(column < logits.size(-1));
  return {{}, column.clamp(0, logits.size(-1) - 1).unsqueeze(-1), here.to(logits.scalar_type())};
}

// d loss / d logits = (softmax - onehot(label)) * scale.
at::Tensor logits_gradient(const LogitsBlock& block, const at::Tensor& denominator, const at::Tensor& scale) {
  at::Tensor gradient = block.exponentials / denominator.unsqueeze(-1);
  gradient.scatter_add_(-1, block.labels, block.here.neg().unsqueeze(-1));
  return gradient.mul_(scale);
}

// Over logits whose vocab is sharded: the max and the sums cross the devices, the logits do not.
Array sharded_cross_entropy(const Prepared& call, const Cause& cause, double scale) {
  const Plan& plan = *call.plan;
  std::vector<LogitsBlock> blocks;
  Tensors logits, maxima, sums;
  {
    at::AutoGradMode off(false);
    for (int s = 0; s < plan.runs; ++s) {
      logits.push_back(*call.local(0, s));
      const Where where(plan, s);
      blocks.push_back(
          read_labels(logits[s], indices(cause.operation, *call.local(1, s), where.size("v")), where.offset("v")));
      maxima.push_back(logits[s].amax(-1));
    }
    const Tensors most = reduce_inside(plan, maxima, Move::all_reduce_max, cause);
    for (int s = 0; s < plan.runs; ++s) {
      blocks[s].exponentials = at::exp(logits[s] - most[s].unsqueeze(-1));
      const at::Tensor label = at::gather(logits[s], -1, blocks[s].labels).squeeze(-1) - most[s];
      sums.push_back(at::stack({blocks[s].exponentials.sum(-1), label * blocks[s].here}));
    }
    sums = reduce_inside(plan, sums, Move::all_reduce, cause);
  }
  const std::vector<int> writers = slots_outside(plan);
  Tensors losses;
  for (int s : writers) losses.push_back((sums[s][0].log() - sums[s][1]).sum().mul(scale));
  const std::vector<int> owner = owners_outside(plan);
  record_function("cross_entropy", logits, losses, [=](Tensors gradients) {
    Tensors result;
    for (size_t s = 0; s < blocks.size(); ++s)
      result.push_back(logits_gradient(blocks[s], sums[s][0], gradients[owner[s]] * scale));
    return result;
  });
  return Array(finish(call, std::move(losses), outside_mask(plan)));
}

}  // namespace

Array cross_entropy(Operand logits, const Array& labels) {
  check_integers("cross_entropy", labels, "labels");
  if (labels.size() == 0)
    fail(ErrorKind::shape_mismatch, "cross_entropy",
         fmt::format("labels {} have no element, and nothing has no mean.", labels.type_string()));
  const double scale = 1.0 / static_cast<double>(labels.size());
  const CallSite site{.operation = cross_entropy_op, .where = logits.where()};
  const Array* operands[] = {&logits.array(), &labels};
  Prepared call;
  prepare(call, site, operands, 2);
  if (call.plan->reduced_inside)
    return sharded_cross_entropy(call, {cross_entropy_op.name, logits.where(), call.plan->reason, {}}, scale);
  return run(call, cross_entropy_op.name, [scale](Locals t, const Where& where) {
    const at::Tensor rows = t[0].reshape({-1, t[0].size(-1)});
    const at::Tensor columns = indices("cross_entropy", t[1].reshape({-1}), t[0].size(-1));
    if (where.plan().runs == 1) return at::cross_entropy_loss(rows, columns);
    return at::cross_entropy_loss(rows, columns, {}, at::Reduction::Sum) * scale;
  });
}

}  // namespace tessera
