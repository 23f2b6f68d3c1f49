// Cross-entropy of logits that may be sharded over the vocabulary.
#include "sharding/operations/neural/losses.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <utility>

#include "sharding/array/autograd.h"
#include "sharding/array/tape_state.h"
#include "sharding/base/caller.h"
#include "sharding/base/fail.h"
#include "sharding/operations/argument_checks.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/neural/loss_kernel.h"
#include "sharding/operations/neural/loss_labels.h"
#include "sharding/operations/reduce/reductions.h"
#include "sharding/propagation/run.h"
#include "sharding/propagation/sharded_reduction.h"

namespace tessera {

using namespace detail;

namespace {

const Operation cross_entropy_op{"cross_entropy", "... (v), ... -> ...", Linearity::nonlinear, Padded::lowest};

// Returns the losses by the device's kernel, in the type of the logits.
at::Tensor losses_by_kernel(const at::Tensor& logits, const Labels& labels, const CrossEntropyOptions& options) {
  FusedLosses fused{.smoothing = options.label_smoothing, .z_loss = options.z_loss};
  Tensors out;
  {
    const at::AutoGradMode off(false);
    const at::Tensor rows = logits.detach().reshape({-1, logits.size(-1)});
    fused.logits = rows.stride(1) == 1 ? rows : rows.contiguous();
    fused.labels = FusedLosses::kernel_labels(labels);
    out.push_back(fused.losses().to(logits.scalar_type()).view(logits.sizes().slice(0, logits.dim() - 1)));
  }
  record_function(cross_entropy_op.name, {logits}, out,
                  [fused, sizes = logits.sizes().vec()](const Tensors& gradients) {
                    const at::Tensor result = at::empty(sizes, fused.logits.options());
                    fused.put_gradients(gradients[0].to(at::kFloat).contiguous(), result);
                    return Tensors{result};
                  });
  return std::move(out[0]);
}

at::Tensor whole_losses(const at::Tensor& logits, const at::Tensor& labels, const CrossEntropyOptions& options) {
  constexpr int64_t none = -100;
  const Labels read = read_labels(cross_entropy_op.name, labels.reshape({-1}), logits.size(-1), options.ignore_label);
  if (FusedLosses::is_possible(logits) && !is_nested()) return losses_by_kernel(logits, read, options);
  const at::Tensor columns = read.ignored.defined() ? read.columns.masked_fill(read.ignored, none) : read.columns;
  const bool has_sums = options.label_smoothing || options.z_loss;  // for sums that half precision cannot hold
  const at::Tensor wide = has_sums ? widened_in_graph(logits) : float16_widened_in_graph(logits);
  const at::Tensor rows = wide.reshape({-1, logits.size(-1)});
  at::Tensor losses = at::cross_entropy_loss(rows, columns, {}, at::Reduction::None, none, options.label_smoothing);
  if (options.z_loss) losses = losses + read.without_ignored(options.z_loss * rows.logsumexp(-1).square());
  return losses.to(logits.scalar_type()).reshape(labels.sizes());
}

// The values of one block of logits that the backward pass needs.
struct LogitsBlock {
  Labels labels;
  LabelColumns at;
  int64_t classes;          // without padding
  at::Tensor exponentials;  // exp(logits - max)
};

// Computes the loss of logits whose vocab is sharded: maxima and sums are communicated, logits are not.
struct ShardedLogits {
  int64_t vocab;
  double smoothing, z_loss;
  at::ScalarType type;
  std::vector<LogitsBlock> blocks;
  Tensors most, sums, logs;  // maxima, sums of exponentials, and logsumexp

  // Returns this block's terms of the sums over all devices, stacked: the sum of exponentials, the label's logit, and
  // with label smoothing the sum of all logits. `max` is subtracted from every logit.
  at::Tensor summands(const LogitsBlock& block, const at::Tensor& logits, const at::Tensor& max) const {
    const at::Tensor label = at::gather(logits, -1, block.at.column).squeeze(-1) - max;
    std::vector<at::Tensor> parts{block.exponentials.sum(-1), label.masked_fill(block.at.here.eq(0), 0)};
    if (smoothing) {
      const at::Tensor mine = logits.narrow(-1, 0, block.classes);
      parts.push_back((mine - max.unsqueeze(-1)).sum(-1));  // a sum of the logits alone may overflow
    }
    return at::stack(parts);
  }

  at::Tensor losses(size_t s, const at::Tensor& sum) const {
    const at::Tensor targets =
        smoothing ? (1 - smoothing) * sum[1] + smoothing / static_cast<double>(vocab) * sum[2] : sum[1];
    at::Tensor loss = sum[0].log() - targets;
    if (z_loss) loss = loss + z_loss * logs[s].square();
    return blocks[s].labels.without_ignored(loss).to(type);
  }

  // Returns the gradient of the logits: (1 + 2 z_loss logsumexp) softmax - (1 - smoothing) onehot(label) - smoothing /
  // vocab, for each loss.
  at::Tensor gradient(size_t s, const at::Tensor& of_losses) const {
    const LogitsBlock& block = blocks[s];
    at::Tensor gradient = block.exponentials / sums[s].unsqueeze(-1);
    if (z_loss) gradient.mul_((1 + 2 * z_loss * logs[s]).unsqueeze(-1));
    gradient.scatter_add_(-1, block.at.column, block.at.here.neg().unsqueeze(-1).mul_(1 - smoothing));
    if (smoothing) gradient.sub_(smoothing / static_cast<double>(vocab));
    return gradient.mul_(block.labels.without_ignored(of_losses).unsqueeze(-1)).to(type);
  }
};

Across losses_across(const Prepared& call, const ShardedReduction& reduction, const CrossEntropyOptions& options) {
  const Tensors logits = widened(locals(call, 0));
  const int64_t vocab = BlockContext(*call.plan, 0).size("v");
  ShardedLogits all{.vocab = vocab,
                    .smoothing = options.label_smoothing,
                    .z_loss = options.z_loss,
                    .type = call.local(0, 0)->scalar_type(),
                    .blocks = std::vector<LogitsBlock>(logits.size()),
                    .sums = Tensors(logits.size()),
                    .logs = Tensors(logits.size())};
  each_slot(logits, [&](int s) {
    Labels labels = read_labels(cross_entropy_op.name, *call.local(1, s), vocab, options.ignore_label);
    const int64_t offset = BlockContext(*call.plan, s).offset("v"), width = logits[s].size(-1);
    LabelColumns at = columns_in(labels, offset, width, logits[s].scalar_type());
    all.blocks[s] = {std::move(labels), std::move(at), std::clamp<int64_t>(vocab - offset, 0, width), {}};
  });
  all.most =
      reduction.combine(for_each(logits, [](const at::Tensor& t) { return t.amax(-1); }), Collective::all_reduce_max);
  Tensors summands(logits.size());
  each_slot(logits, [&](int s) {
    all.blocks[s].exponentials = at::exp(logits[s] - all.most[s].unsqueeze(-1));
    summands[s] = all.summands(all.blocks[s], logits[s], all.most[s]);
  });
  const Tensors sums = reduction.combine(summands, Collective::all_reduce);
  Tensors losses(logits.size());
  each_slot(sums, [&](int s) {
    all.sums[s] = sums[s][0];
    all.logs[s] = all.sums[s].log() + all.most[s];
    losses[s] = all.losses(s, sums[s]);
  });
  return {losses, [all = std::move(all)](const Tensors& gradients) {
            Tensors result(2 * gradients.size());  // labels have no gradients
            each_slot(all.most, [&](int s) { result[s] = all.gradient(s, gradients[s]); });
            return result;
          }};
}

Array losses_of(const Operand& logits, const Array& labels, const CrossEntropyOptions& options) {
  const char* verb = cross_entropy_op.name;
  const Shape& shape = materialized(logits.array(), verb).type->shape;
  if (shape.empty())
    fail(ErrorKind::shape_mismatch, verb, "given {} and labels {}, expected logits (..., vocab).",
         logits.array().type_string(), labels.type_string());
  check_loss(verb, logits.array(), Shape(shape.begin(), shape.end() - 1), labels, shape.back(), options);
  return run_sharded_reduction(
      {.operation = cross_entropy_op, .where = logits.where()}, {&logits.array(), &labels},
      [&](Locals t, const BlockContext&) { return whole_losses(t[0], t[1], options); },
      [&](const Prepared& call, const ShardedReduction& reduction) { return losses_across(call, reduction, options); });
}

bool weighs_alike(const CrossEntropyOptions& options) { return options.weights.is_absent() && !options.ignore_label; }

}  // namespace

Array cross_entropy_per_position(Operand logits, const Array& labels, const CrossEntropyOptions& options) {
  const CallerScope caller(logits.where());
  const Array losses = losses_of(logits, labels, options);
  return options.weights.is_absent() ? losses : losses * position_weights(labels, options, losses.dtype());
}

WeightedSum cross_entropy_sum(Operand logits, const Array& labels, const CrossEntropyOptions& options) {
  const CallerScope caller(logits.where());
  const Array losses = losses_of(logits, labels, options);
  return weighted_sum(losses, position_weights(labels, options, sum_dtype(losses.dtype())));
}

Array cross_entropy(Operand logits, const Array& labels, const CrossEntropyOptions& options) {
  const CallerScope caller(logits.where());
  if (!labels.is_absent() && labels.size() == 0)
    fail(ErrorKind::shape_mismatch, cross_entropy_op.name, "labels {} have no elements, so their mean is undefined.",
         labels.type_string());
  if (weighs_alike(options)) return mean(losses_of(logits, labels, options));
  return astype(cross_entropy_sum(logits, labels, options).mean(), logits.array().dtype());
}

}  // namespace tessera
