// Cross-entropy, whose logits may be sharded over the vocabulary.
#include "sharding/operations/losses.h"

#include <ATen/ATen.h>

#include "sharding/diagnostics/fail.h"
#include "sharding/operations/argument_checks.h"
#include "sharding/propagation/run.h"
#include "sharding/propagation/sharded_reduction.h"

namespace tessera {

using namespace detail;

namespace {

const Operation cross_entropy_op{"cross_entropy", "... (v), ... -> ", Linearity::nonlinear};

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
Across cross_entropy_across(const Prepared& call, const ShardedReduction& reduction, double scale) {
  const Tensors logits = locals(call, 0);
  std::vector<LogitsBlock> blocks;
  for (size_t s = 0; s < logits.size(); ++s) {
    const BlockContext block(*call.plan, static_cast<int>(s));
    const at::Tensor labels = indices(cross_entropy_op.name, *call.local(1, static_cast<int>(s)), block.size("v"));
    blocks.push_back(read_labels(logits[s], labels, block.offset("v")));
  }
  const Tensors most =
      reduction.combine(for_each(logits, [](const at::Tensor& t) { return t.amax(-1); }), Collective::all_reduce_max);
  Tensors sums, losses;
  for (size_t s = 0; s < blocks.size(); ++s) {
    blocks[s].exponentials = at::exp(logits[s] - most[s].unsqueeze(-1));
    const at::Tensor label = at::gather(logits[s], -1, blocks[s].labels).squeeze(-1) - most[s];
    sums.push_back(at::stack({blocks[s].exponentials.sum(-1), label.masked_fill(blocks[s].here.eq(0), 0)}));
  }
  sums = reduction.combine(sums, Collective::all_reduce);
  for (const at::Tensor& sum : sums) losses.push_back((sum[0].log() - sum[1]).sum().mul(scale));
  return {losses, [=](const Tensors& gradients) {
            Tensors result;
            for (size_t s = 0; s < blocks.size(); ++s)
              result.push_back(logits_gradient(blocks[s], sums[s][0], gradients[s] * scale));
            result.resize(2 * blocks.size());  // the labels have none
            return result;
          }};
}

}  // namespace

Array cross_entropy(Operand logits, const Array& labels) {
  check_integers("cross_entropy", labels, "labels");
  materialized(logits.array(), "cross_entropy");
  if (!is_floating(logits.array().dtype()))
    fail(ErrorKind::dtype_mismatch, "cross_entropy", "logits {}, expected a floating type. Convert with astype.",
         logits.array().type_string());
  if (labels.size() == 0)
    fail(ErrorKind::shape_mismatch, "cross_entropy", "labels {} have no element, and nothing has no mean.",
         labels.type_string());
  const double scale = 1.0 / static_cast<double>(labels.size());
  return run_sharded_reduction(
      {.operation = cross_entropy_op, .where = logits.where()}, {&logits.array(), &labels},
      [scale](Locals t, const BlockContext& block) {
        const at::Tensor rows = t[0].reshape({-1, t[0].size(-1)});
        const at::Tensor columns = indices("cross_entropy", t[1].reshape({-1}), t[0].size(-1));
        if (!is_divided(block.plan())) return at::cross_entropy_loss(rows, columns);
        return at::cross_entropy_loss(rows, columns, {}, at::Reduction::Sum) * scale;
      },
      [scale](const Prepared& call, const ShardedReduction& reduction) {
        return cross_entropy_across(call, reduction, scale);
      });
}

}  // namespace tessera
