// Computes chunks of logits, their losses, and their gradients in one pass.
#include "sharding/operations/neural/linear_cross_entropy.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>

#include <algorithm>
#include <cmath>

#include "sharding/array/tape_state.h"
#include "sharding/base/caller.h"
#include "sharding/base/fail.h"
#include "sharding/kernels/parallel_for.h"
#include "sharding/kernels/tensors.h"
#include "sharding/operations/argument_checks.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/index/slicing.h"
#include "sharding/operations/linalg/linear_algebra.h"
#include "sharding/operations/neural/loss_kernel.h"
#include "sharding/operations/neural/loss_labels.h"
#include "sharding/operations/reduce/reductions.h"
#include "sharding/operations/shape/creation.h"
#include "sharding/operations/shape/shapes.h"
#include "sharding/propagation/sharded_reduction.h"

namespace tessera {

using namespace detail;

namespace {

// Returns the rule "... [e], [e] (v), ..., ... -> ", without the last operand if all weights are 1. Attribute: whether
// the kernel is transposed.
ShardingRule linear_rule(const Attributes& attributes, const OperandTypes& operands) {
  const RuleFactor e = whole("e"), v = reduced_inside("v");
  ShardingRule rule{{{any_dims(), e}, attributes[0] ? RuleDims{v, e} : RuleDims{e, v}, {any_dims()}}, {{}}};
  if (operands.size() > 3) rule.in.push_back({any_dims()});
  return rule;
}

const Operation linear_cross_entropy_op{"linear_cross_entropy", linear_rule, Linearity::nonlinear, Padded::inside};

enum OperandNumber { x_operand, kernel_operand, labels_operand, weights_operand };

// The slots that read the same local tensor of an operand. Inside shard_map each slot's loss has its own gradient, so
// gradients of several slots cannot be added here.
struct Sharing {
  std::vector<int> group;  // by slot
  std::vector<int> first;  // by group: its first slot

  Sharing(const Prepared& call, int operand) {
    std::vector<int> seen;
    for (int s = 0; s < call.plan->runs; ++s) {
      const int index = call.plan->varying ? s : call.index[operand][s];
      const auto found = std::find(seen.begin(), seen.end(), index);
      group.push_back(static_cast<int>(found - seen.begin()));
      if (found == seen.end()) seen.push_back(index), first.push_back(s);
    }
  }
  int size() const { return static_cast<int>(first.size()); }
};

// Returns the number of positions whose logits exist at one time; on a GPU, shared by `slots`, as many as its limit
// allows. The number is equal on all devices, because they communicate for each chunk: `columns` includes a block's
// padding.
int64_t chunk_of(const LinearCrossEntropyOptions& options, const at::Tensor& x, int64_t rows, int64_t columns,
                 int64_t slots) {
  constexpr int64_t few = 512;
  const int64_t elements = (256 << 20) / slots;
  if (options.chunk || x.is_cpu() || x.is_meta()) return options.chunk.value_or(few);
  const int64_t most = std::max(few, elements / std::max<int64_t>(1, columns));
  const int64_t chunks = std::max<int64_t>(1, (rows + most - 1) / most);
  return std::max<int64_t>(1, (rows + chunks - 1) / chunks);  // chunks of equal size
}

// One slot: its rows of x, its columns of the kernel without padding, and the logits of one chunk.
struct Slot {
  at::Tensor x, kernel;  // (rows, embed), (embed, columns)
  at::Tensor weights;    // (rows); undefined: all are 1
  Labels labels;
  LabelColumns at;
  at::Tensor losses;            // (rows), without weights
  at::Tensor logits, capped;    // (chunk, columns): scratch
  at::Tensor chunk, most, sum;  // this chunk's logits, then exponentials, then gradients; its max; its sums
  at::Tensor gradients;         // (chunk, columns), of x's type: scratch of the device's kernel
};

class ChunkedLoss {
 public:
  ChunkedLoss(const Prepared& call, const ShardedReduction& reduction, const LinearCrossEntropyOptions& options)
      : call_(call),
        reduction_(reduction),
        options_(options),
        of_x_(call, x_operand),
        of_kernel_(call, kernel_operand) {
    vocab_ = options.vocab ? options.vocab : BlockContext(*call.plan, 0).size("v");
    chunk_ = chunk_of(options, *call.local(x_operand, 0), call.local(labels_operand, 0)->numel(), block_columns(0),
                      call.plan->runs);
    by_kernel_ = !call.plan->reduced_inside && !options.logit_softcap && vocab_ <= block_columns(0) &&
                 FusedLosses::is_possible(*call.local(x_operand, 0));
    for (int s = 0; s < call.plan->runs; ++s) slots_.push_back(slot_of(s));
  }

  // Prepares the wanted gradients, of sums in which each loss has its weight.
  void differentiate(bool x, bool kernel) {
    for (int g = 0; x && g < of_x_.size(); ++g) x_gradients_.push_back(wide_zeros(slots_[of_x_.first[g]].x));
    for (int g = 0; kernel && g < of_kernel_.size(); ++g)
      kernel_gradients_.push_back(wide_zeros(*call_.local(kernel_operand, of_kernel_.first[g])));
  }

  Across run() {
    const int64_t rows = slots_[0].x.size(0);
    for (int64_t row = 0; row < rows; row += chunk_) take(row, std::min(chunk_, rows - row));
    Tensors sums;
    for (Slot& s : slots_) {
      s.logits = s.capped = s.chunk = s.gradients = at::Tensor();
      sums.push_back((s.weights.defined() ? s.losses * s.weights : s.losses).sum());
    }
    return {sums, backward()};
  }

 private:
  static at::Tensor wide_zeros(const at::Tensor& like) {
    return like.new_zeros(like.sizes(), at::toOpMathType(like.scalar_type()));
  }

  // block_columns returns a slot's columns of the kernel including padding, columns_of without. A slot may have padding
  // only.
  int64_t block_columns(int s) const { return call_.local(kernel_operand, s)->size(options_.transposed ? 0 : 1); }
  int64_t columns_of(int s) const {
    return std::clamp<int64_t>(vocab_ - BlockContext(*call_.plan, s).offset("v"), 0, block_columns(s));
  }

  Slot slot_of(int s) const {
    Slot slot;
    const at::Tensor &x = *call_.local(x_operand, s), &kernel = *call_.local(kernel_operand, s);
    const int64_t offset = BlockContext(*call_.plan, s).offset("v"), columns = columns_of(s);
    const at::Tensor labels = call_.local(labels_operand, s)->reshape({-1});
    const int64_t rows = labels.size(0);
    slot.x = x.detach().reshape({rows, x.size(-1)});
    slot.kernel = (options_.transposed ? kernel.detach().t() : kernel.detach()).narrow(1, 0, columns);
    const at::ScalarType wide = at::toOpMathType(x.scalar_type());
    if (call_.operands > weights_operand) slot.weights = call_.local(weights_operand, s)->detach().reshape({-1});
    slot.labels = read_labels(linear_cross_entropy_op.name, labels, vocab_, options_.ignore_label);
    slot.at = columns_in(slot.labels, offset, columns, wide);
    slot.losses = slot.x.new_empty({rows}, wide);
    slot.logits = slot.x.new_empty({std::min(rows, chunk_), columns}, wide);
    if (options_.logit_softcap) slot.capped = at::empty_like(slot.logits);
    return slot;
  }

  template <class Job>
  void each(int64_t n, const Job& job) {
    const Slot& one = slots_[0];
    const int64_t products = n * one.x.size(1) * one.kernel.size(1) / 20;
    parallel_for(static_cast<int>(slots_.size()), static_cast<int64_t>(slots_.size()) * (2'000 + products), [&](int s) {
      const at::AutoGradMode off(false);
      job(slots_[s]);
    });
  }

  Tensors combined(at::Tensor Slot::*part, Collective collective) {
    Tensors parts;
    for (const Slot& s : slots_) parts.push_back(s.*part);
    return call_.plan->reduced_inside ? reduction_.combine(parts, collective) : parts;
  }

  bool wants_gradients() const { return !x_gradients_.empty() || !kernel_gradients_.empty(); }

  // Processes n rows from `row` on.
  void take(int64_t row, int64_t n) {
    each(n, [&](Slot& s) { make_logits(s, row, n); });
    if (by_kernel_)
      each(n, [&](Slot& s) { make_losses_by_kernel(s, row, n); });
    else
      make_losses_together(row, n);
    if (!x_gradients_.empty()) add_x_gradients(row, n);
    if (!kernel_gradients_.empty()) add_kernel_gradients(row, n);
  }

  // Computes losses and the gradients of the logits by one kernel each.
  void make_losses_by_kernel(Slot& s, int64_t row, int64_t n) const {
    FusedLosses fused{
        s.chunk, FusedLosses::kernel_labels(s.labels).narrow(0, row, n), {}, options_.label_smoothing, options_.z_loss};
    s.losses.narrow(0, row, n).copy_(fused.losses());
    if (!wants_gradients()) return;
    if (!s.gradients.defined()) s.gradients = at::empty_like(s.logits, s.x.options());
    s.chunk = s.gradients.narrow(0, 0, n);
    fused.put_gradients(s.weights.defined() ? s.weights.narrow(0, row, n).to(at::kFloat).contiguous()
                                            : at::ones_like(s.losses.narrow(0, row, n)),
                        s.chunk);
  }

  // Computes losses and the gradients of the logits; devices that share the vocabulary communicate.
  void make_losses_together(int64_t row, int64_t n) {
    each(n, [&](Slot& s) { s.most = s.chunk.size(1) ? s.chunk.amax(-1) : s.chunk.new_full({n}, -INFINITY); });
    const Tensors most = combined(&Slot::most, Collective::all_reduce_max);
    for (size_t s = 0; s < slots_.size(); ++s) slots_[s].most = most[s];
    each(n, [&](Slot& s) { make_sums(s, row, n); });
    const Tensors sums = combined(&Slot::sum, Collective::all_reduce);
    for (size_t s = 0; s < slots_.size(); ++s) slots_[s].sum = sums[s];
    each(n, [&](Slot& s) {
      make_losses(s, row, n);
      if (wants_gradients()) make_gradients(s, row, n);
    });
  }

  void make_logits(Slot& s, int64_t row, int64_t n) const {
    const at::Tensor x = s.x.narrow(0, row, n);
    s.chunk = s.logits.narrow(0, 0, n);
    multiply_into(s.chunk, x, s.kernel);
    if (options_.logit_softcap) {
      s.chunk.div_(*options_.logit_softcap).tanh_();
      s.capped.narrow(0, 0, n).copy_(s.chunk);
      s.chunk.mul_(*options_.logit_softcap);
    }
  }

  // Computes the sum of exponentials, the label's logit and, for label smoothing, the sum of all logits. The max is
  // subtracted from every logit.
  void make_sums(Slot& s, int64_t row, int64_t n) const {
    const at::Tensor column = s.at.column.narrow(0, row, n), here = s.at.here.narrow(0, row, n);
    at::sub_out(s.chunk, s.chunk, s.most.unsqueeze(-1));
    const at::Tensor label =
        s.chunk.size(1) ? s.chunk.gather(-1, column).squeeze(-1).masked_fill_(here.eq(0), 0) : at::zeros_like(s.most);
    const at::Tensor all = options_.label_smoothing ? s.chunk.sum(-1) : at::Tensor();
    const at::Tensor exponentials = s.chunk.exp_().sum(-1);
    s.sum = all.defined() ? at::stack({exponentials, label, all}) : at::stack({exponentials, label});
  }

  void make_losses(Slot& s, int64_t row, int64_t n) const {
    const double a = options_.label_smoothing;
    const at::Tensor log = s.sum[0].log();
    at::Tensor loss = log - (a ? (1 - a) * s.sum[1] + a / static_cast<double>(vocab_) * s.sum[2] : s.sum[1]);
    if (options_.z_loss) loss.add_((log + s.most).square(), options_.z_loss);
    if (s.labels.ignored.defined()) loss.masked_fill_(s.labels.ignored.narrow(0, row, n), 0);
    s.losses.narrow(0, row, n).copy_(loss);
  }

  // Replaces the exponentials by the gradient of the logits, for a sum in which each loss has its weight w: w ((1 + 2
  // z_loss logsumexp) softmax - (1 - smoothing) onehot(label) - smoothing / vocab), times the softcap's slope.
  void make_gradients(Slot& s, int64_t row, int64_t n) const {
    const double a = options_.label_smoothing;
    at::Tensor weight = s.weights.defined() ? s.weights.narrow(0, row, n) : at::ones_like(s.most);
    if (s.labels.ignored.defined()) weight = weight.masked_fill(s.labels.ignored.narrow(0, row, n), 0);
    at::Tensor scale = weight / s.sum[0];
    if (options_.z_loss) scale = scale * (1 + 2 * options_.z_loss * (s.sum[0].log() + s.most));
    s.chunk.mul_(scale.unsqueeze(-1));
    const at::Tensor target = (weight * s.at.here.narrow(0, row, n)).mul_(a - 1);
    if (s.chunk.size(1)) s.chunk.scatter_add_(-1, s.at.column.narrow(0, row, n), target.unsqueeze(-1));
    if (a) s.chunk.sub_((weight * (a / static_cast<double>(vocab_))).unsqueeze(-1));
    if (options_.logit_softcap) s.chunk.mul_(s.capped.narrow(0, 0, n).square_().neg_().add_(1));
    if (s.x.scalar_type() != s.chunk.scalar_type()) s.chunk = s.chunk.to(s.x.scalar_type());
  }

  // Adds gradients of slots that share a tensor in the order of the slots.
  void add_x_gradients(int64_t row, int64_t n) {
    const int64_t cost = n * slots_[0].x.size(1) * slots_[0].kernel.size(1) / 20;
    parallel_for(of_x_.size(), static_cast<int64_t>(slots_.size()) * cost, [&](int g) {
      const at::AutoGradMode off(false);
      for (size_t s = 0; s < slots_.size(); ++s)
        if (of_x_.group[s] == g) add_product(x_gradients_[g].narrow(0, row, n), slots_[s].chunk, slots_[s].kernel.t());
    });
  }

  // Adds the gradients of the kernel. Data-parallel slots share one kernel, so each job takes some of its columns: then
  // all cores have work.
  void add_kernel_gradients(int64_t row, int64_t n) {
    const int groups = of_kernel_.size();
    const int parts = (static_cast<int>(slots_.size()) + groups - 1) / groups;
    const int64_t cost = n * slots_[0].x.size(1) * slots_[0].kernel.size(1) / 20;
    parallel_for(groups * parts, static_cast<int64_t>(slots_.size()) * cost, [&](int job) {
      const at::AutoGradMode off(false);
      const int g = job / parts, part = job % parts;
      const int64_t columns = slots_[of_kernel_.first[g]].kernel.size(1);
      const int64_t from = columns * part / parts, length = columns * (part + 1) / parts - from;
      const at::Tensor sum = kernel_gradients_[g].narrow(options_.transposed ? 0 : 1, from, length);
      for (size_t s = 0; s < slots_.size(); ++s) {
        if (of_kernel_.group[s] != g) continue;
        const at::Tensor x = slots_[s].x.narrow(0, row, n), logits = slots_[s].chunk.narrow(1, from, length);
        options_.transposed ? add_product(sum, logits.t(), x) : add_product(sum, x.t(), logits);
      }
    });
  }

  // Returns the function that scales the computed gradients. The graph calls it once, so it may scale in place.
  Backward backward() {
    // The gradient of the weights: the losses on the first device along the vocabulary, and zeros elsewhere. Without
    // the zeros, a process that has no first device would skip the collective of this gradient.
    Tensors losses;
    for (size_t s = 0; s < slots_.size(); ++s) {
      const at::Tensor& all = slots_[s].losses;
      const bool is_first = BlockContext(*call_.plan, static_cast<int>(s)).offset("v") == 0;
      losses.push_back(is_first ? all : all.new_zeros({1}).expand(all.sizes()));
    }
    const at::Tensor& x = *call_.local(x_operand, 0);
    const bool weighted = call_.operands > weights_operand;
    return [losses, weighted, x_gradients = std::move(x_gradients_), kernel_gradients = std::move(kernel_gradients_),
            x_first = of_x_.first, kernel_first = of_kernel_.first, sizes = x.sizes().vec(),
            type = x.scalar_type()](const Tensors& scale) {
      const size_t runs = scale.size();
      Tensors result(runs * (weighted ? 4 : 3));
      for (size_t g = 0; g < x_gradients.size(); ++g)
        result[x_first[g]] = x_gradients[g].mul_(scale[x_first[g]]).to(type).view(sizes);
      for (size_t g = 0; g < kernel_gradients.size(); ++g)
        result[runs + kernel_first[g]] = kernel_gradients[g].mul_(scale[kernel_first[g]]).to(type);
      for (size_t s = 0; weighted && s < runs; ++s)
        result[3 * runs + s] = (losses[s] * scale[s]).view(at::IntArrayRef(sizes).slice(0, sizes.size() - 1));
      return result;
    };
  }

  const Prepared& call_;
  const ShardedReduction& reduction_;
  const LinearCrossEntropyOptions& options_;
  int64_t chunk_ = 0;
  Sharing of_x_, of_kernel_;
  int64_t vocab_ = 0;
  bool by_kernel_ = false;  // the device's kernel computes losses and gradients of the logits
  std::vector<Slot> slots_;
  Tensors x_gradients_, kernel_gradients_;  // by group
};

CrossEntropyOptions loss_options(const LinearCrossEntropyOptions& o) {
  return {
      .weights = o.weights, .ignore_label = o.ignore_label, .label_smoothing = o.label_smoothing, .z_loss = o.z_loss};
}

void check(const Array& x, const Array& kernel, const Array& labels, const LinearCrossEntropyOptions& options) {
  const char* verb = linear_cross_entropy_op.name;
  const Shape &shape = materialized(x, verb).type->shape, &kernel_shape = materialized(kernel, verb).type->shape;
  if (shape.empty() || kernel_shape.size() != 2 || kernel_shape[options.transposed ? 1 : 0] != shape.back())
    fail(ErrorKind::shape_mismatch, verb, "given {} and the kernel {}, expected (..., embed) and {}.", x.type_string(),
         kernel.type_string(), options.transposed ? "(vocab, embed)" : "(embed, vocab)");
  const int64_t columns = kernel_shape[options.transposed ? 0 : 1];
  check_loss(verb, x, Shape(shape.begin(), shape.end() - 1), labels, columns, loss_options(options));
  if (options.vocab < 0 || options.vocab > columns)
    fail(ErrorKind::invalid_argument, verb, "vocab {} of the kernel {}, expected 1 to {}, or 0 for all.", options.vocab,
         kernel.type_string(), columns);
  if (options.chunk && *options.chunk < 1)
    fail(ErrorKind::invalid_argument, verb, "chunk {}, expected 1 or more.", *options.chunk);
  if (options.logit_softcap && !(*options.logit_softcap > 0 && std::isfinite(*options.logit_softcap)))
    fail(ErrorKind::invalid_argument, verb, "logit_softcap {}, expected a positive number.", *options.logit_softcap);
}

Array whole_logits(const Operand& x, const Array& kernel, const LinearCrossEntropyOptions& options, DType wide) {
  const int classes = options.transposed ? 0 : 1;
  const bool is_padded = options.vocab && options.vocab < kernel.shape(classes);
  const Array used = is_padded ? slice_in_dim(kernel, 0, options.vocab, classes) : kernel;
  const Array logits = astype(matmul(x, options.transposed ? transpose(used) : used), wide);
  return options.logit_softcap ? *options.logit_softcap * tanh(logits / *options.logit_softcap) : logits;
}

// Returns the sum of the losses times the weights, which may be absent.
Array chunked(const Operand& x, const Array& kernel, const Array& labels, const Array& weights,
              const LinearCrossEntropyOptions& options, DType wide) {
  const CallSite site{
      .operation = linear_cross_entropy_op, .attributes = {options.transposed}, .out_dtype = wide, .where = x.where()};
  const Array* operands[] = {&x.array(), &kernel, &labels, &weights};
  Prepared call;
  prepare(call, site, operands, weights.is_absent() ? 3 : 4);
  const bool x_wanted = is_recorded(*call.local(x_operand, 0)),
             kernel_wanted = is_recorded(*call.local(kernel_operand, 0));
  return run_across(call, site, [&](const Prepared& prepared, const ShardedReduction& reduction) {
    ChunkedLoss loss(prepared, reduction, options);
    loss.differentiate(x_wanted, kernel_wanted);
    return loss.run();
  });
}

}  // namespace

WeightedSum linear_cross_entropy_sum(Operand x, const Array& kernel, const Array& labels,
                                     const LinearCrossEntropyOptions& options) {
  const CallerScope caller(x.where());
  check(x.array(), kernel, labels, options);
  const DType dtype = promote(x.array().dtype(), kernel.dtype()), wide = sum_dtype(dtype);
  const Array in = astype(x, dtype), weight = astype(kernel, dtype);
  if (is_nested())
    return cross_entropy_sum(whole_logits({in, x.where()}, weight, options, wide), labels, loss_options(options));
  const Array weights = position_weights(labels, loss_options(options), wide);
  const Array given = options.weights.is_absent() ? Array() : weights;
  const Array total = weights.is_absent() ? full({}, static_cast<double>(labels.size()), wide) : sum(weights);
  return {chunked({in, x.where()}, weight, labels, given, options, wide), total};
}

Array linear_cross_entropy(Operand x, const Array& kernel, const Array& labels,
                           const LinearCrossEntropyOptions& options) {
  const CallerScope caller(x.where());
  if (!labels.is_absent() && labels.size() == 0)
    fail(ErrorKind::shape_mismatch, linear_cross_entropy_op.name,
         "labels {} have no elements, so their mean is undefined.", labels.type_string());
  return linear_cross_entropy_sum(x, kernel, labels, options).mean();
}

}  // namespace tessera
