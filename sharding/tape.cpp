// Shadows, and the gradients of all leaves brought home.
#include "sharding/tape.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "sharding/abstract_tensor.h"
#include "sharding/array_impl.h"
#include "sharding/autograd.h"
#include "sharding/check.h"
#include "sharding/communication.h"
#include "sharding/gradient_buckets.h"
#include "sharding/recipe.h"
#include "sharding/redistribute.h"
#include "sharding/tape_state.h"

namespace tessera {

using namespace detail;

namespace {

thread_local TapeState* innermost = nullptr;
thread_local TapeState* differentiated = nullptr;

struct Differentiating {
  explicit Differentiating(TapeState* tape) : outer(std::exchange(differentiated, tape)) {}
  ~Differentiating() { differentiated = outer; }
  TapeState* outer;
};

}  // namespace

TapeState* detail::current_tape() { return innermost; }
bool detail::is_nested() { return innermost && innermost->nested; }
TapeState* detail::differentiated_tape() { return differentiated; }

struct Tape::Guard {
  explicit Guard(TapeState* tape) : outer(std::exchange(innermost, tape)) {}
  ~Guard() { innermost = outer; }
  TapeState* outer;
  at::AutoGradMode recording{true};
};

namespace {

// Nothing is borrowed where the backward pass is recorded: its graph reads the weights later still.
std::shared_ptr<TapeState> opened(GradientOptions options) {
  auto state = std::make_shared<TapeState>();
  state->nested = options.differentiable && innermost;
  options.borrow_gathers = options.borrow_gathers && !state->nested;
  state->options = options;
  return state;
}

Array shadow_of(const Array& x, const std::shared_ptr<TapeState>& state) {
  if (x.is_absent() || !is_floating(x.dtype())) return x;
  const Type* given = materialized(x, "value_and_grad").type;
  const bool depends = state->nested && wants_gradient(*x.impl());
  at::AutoGradMode off(false);
  const Type* type = with_unreduced(with_reduced(given, 0), 0);  // a gradient is a value, no pending sum
  const ArrayPtr value = convert(*x.impl(), x.impl(), type, {.operation = "value_and_grad", .where = {}});
  const ArrayImpl& a = *value;
  Tensors local;
  for (const at::Tensor& t : a.local) local.push_back(t.detach());
  ArrayPtr shadow = make_array(type, a.slots, std::move(local));
  shadow->weight = true;
  shadow->layout = a.layout;
  Details& details = shadow->detail();
  details.tape = state;
  if (depends) state->outside[shadow.get()] = x.impl();
  if (a.details) {
    details.path = a.details->path;
    if (a.details->placed && type == given) details.placed = std::make_unique<NamedSharding>(*a.details->placed);
  }
  return Array(std::move(shadow));
}

bool is_traced(const Array& shadow) {
  return !shadow.is_absent() && shadow.impl()->details && shadow.impl()->details->tape;
}

[[noreturn]] void fail_no_gradient() {
  fail(ErrorKind::no_gradient, "value_and_grad",
       "no gradient reaches the model: the loss does not depend on the model that the function received. Compute it "
       "from the argument, not from a captured model.");
}

// The tensors to differentiate: of a loss that no device holds only in part.
ArrayPtr root_of(const Array& loss) {
  if (loss.is_absent()) fail(ErrorKind::absent, "value_and_grad", "the loss is an absent array.");
  if (loss.ndim() != 0 || !is_floating(loss.dtype()))
    fail(ErrorKind::shape_mismatch, "value_and_grad",
         fmt::format("the loss is {}, expected a floating scalar. Reduce it, for example with mean.",
                     loss.type_string()));
  materialized(loss, "value_and_grad");
  ArrayPtr root = loss.impl();
  if (root->type->reduced || is_tape_parameter(*root))
    root =
        convert(*root, root, with_reduced(root->type, 0), {.operation = "loss", .where = {}, .reason = handed_out()});
  if (!wants_gradient(*root)) fail_no_gradient();
  return root;
}

// Zeros that take no memory: a pending sum that devices have added up already is the first one's alone.
at::Tensor nothing_like(const at::Tensor& t) { return t.new_zeros({}).expand(t.sizes()); }

// Adds up each list, all lists in step, with bulk kernels; the inputs are not written to.
Tensors sum_each(const std::vector<Tensors>& lists) {
  Tensors sums;
  size_t longest = 0;
  for (const Tensors& list : lists) sums.push_back(list[0]), longest = std::max(longest, list.size());
  for (size_t k = 1; k < longest; ++k) {
    std::vector<at::Tensor> left, right;
    std::vector<size_t> places;
    for (size_t i = 0; i < lists.size(); ++i) {
      if (lists[i].size() <= k) continue;
      left.push_back(sums[i]), right.push_back(lists[i][k]), places.push_back(i);
    }
    const std::vector<at::Tensor> added = at::_foreach_add(left, right);
    for (size_t i = 0; i < places.size(); ++i) sums[places[i]] = added[i];
  }
  return sums;
}

// The gradients of all leaves, on their way to the parameters that handed them out.
class Backpropagation {
 public:
  Backpropagation(const std::vector<Array>& shadows, TapeState& tape)
      : shadows_(shadows), tape_(tape), homes_(shadows.size()) {
    for (size_t p = 0; p < shadows.size(); ++p)
      if (is_traced(shadows[p]))
        for (const ArrayPtr& leaf : parameter(p).details->leaves) add_leaf(p, leaf.get(), leaf->local);
    if (tape_.anchor.defined()) leaves_.push_back(tape_.anchor);
  }

  void run(const ArrayImpl& root) {
    if (leaves_.empty()) fail_no_gradient();
    Tensors seeds;
    for (const at::Tensor& t : root.local) seeds.push_back(at::ones_like(t));
    gradients_ = detail::gradients(root.local, seeds, leaves_, tape_.nested);
    add_late_gradients();
    if (std::none_of(gradients_.begin(), gradients_.end(), is_defined)) fail_no_gradient();
  }

  // The same in the graph, for the gradient of the tape around this one.
  std::vector<Array> finish_recorded() {
    std::vector<Array> result;
    for (size_t p = 0; p < shadows_.size(); ++p)
      result.push_back(is_traced(shadows_[p]) ? recorded_gradient(p) : Array());
    return result;
  }

  // One gradient per shadow, at the parameter's own placement.
  std::vector<Array> finish() {
    for (size_t p = 0; p < shadows_.size(); ++p)
      if (is_traced(shadows_[p])) gather_contributions(p);
    if (checks) check_parameters();
    buckets_.announce();
    sums_ = sum_each(contributions_);
    buckets_.reduce(sums_);
    std::vector<Array> result;
    for (size_t p = 0; p < shadows_.size(); ++p) result.push_back(is_traced(shadows_[p]) ? gradient_of(p) : Array());
    return result;
  }

 private:
  // A leaf, and where its gradients stand in the list of all.
  struct LeafRange {
    const ArrayImpl* leaf;
    size_t begin;
  };
  struct Home {
    std::vector<LeafRange> leaves;
    const Type* type = nullptr;  // of the gradient
    size_t first_block = 0;      // of contributions_
  };
  static bool is_defined(const at::Tensor& t) { return t.defined(); }

  const ArrayImpl& parameter(size_t p) const { return *shadows_[p].impl(); }

  void check_parameters() const {
    for (size_t p = 0; p < shadows_.size(); ++p) {
      if (!is_traced(shadows_[p])) continue;
      const ArrayImpl& a = parameter(p);
      const Text path = a.details ? a.details->path : nullptr;
      check_replicas_across_processes(a.type, a.local, {.operation = gradients_operation, .path = path});
    }
  }

  void add_leaf(size_t p, const ArrayImpl* leaf, const Tensors& tensors) {
    homes_[p].leaves.push_back({leaf, leaves_.size()});
    leaves_.append(tensors.begin(), tensors.end());
  }

  // What remat's second runs brought: as if from leaves of their own.
  void add_late_gradients() {
    std::map<const ArrayImpl*, size_t> place;
    for (size_t p = 0; p < shadows_.size(); ++p)
      if (is_traced(shadows_[p])) place[&parameter(p)] = p;
    for (const LateGradients& late : tape_.late) {
      add_leaf(place.at(late.parameter.get()), late.leaf.get(), late.leaf->local);
      gradients_.append(late.gradients.begin(), late.gradients.end());
    }
    tape_.late.clear();
  }

  void gather_contributions(size_t p) {
    Home& home = homes_[p];
    const ArrayImpl& a = parameter(p);
    std::erase_if(home.leaves, [&](const LeafRange& range) { return !fill_gaps(range); });
    const Mask axes = axes_of(p);
    const MeshImpl* mesh = a.type->mesh;
    for (const LeafRange& range : home.leaves)
      if (!mesh) mesh = range.leaf->type->mesh;
    home.type = tape_.options.reduce || !axes ? a.type : with_unreduced(on_mesh(a.type, mesh), axes);
    home.first_block = contributions_.size();
    const int blocks = home.type->mesh ? mesh->slots(mesh->distinct(home.type->own())) : 1;
    contributions_.resize(contributions_.size() + blocks);
    for (int b = 0; b < blocks; ++b) {
      Tensors& list = contributions_[home.first_block + b];
      for (const LeafRange& range : home.leaves) add_contributions(*home.type, range, mesh, axes, b, list);
      if (list.empty()) list.push_back(home.type->unreduced ? nothing_like(a.local[0]) : at::zeros_like(a.local[0]));
      bring_to_memory_of(home.type->mesh, list);
    }
    if (!axes || !tape_.options.reduce) return;
    const DType dtype = tape_.options.reduction.value_or(a.type->dtype);
    if (dtype != a.type->dtype)
      for (int b = 0; b < blocks; ++b)
        for (at::Tensor& t : contributions_[home.first_block + b]) t = t.to(static_cast<at::ScalarType>(dtype));
    buckets_.add({mesh, axes, dtype}, a.type->bytes / item_size(a.type->dtype) * item_size(dtype), a.details->path,
                 home.first_block, home.first_block + static_cast<size_t>(blocks));
  }

  // Every leaf's gradient as an array, brought to the parameter's placement and added.
  Array recorded_gradient(size_t p) {
    static const Text reason = std::make_shared<const std::string>("the work differs along these axes");
    ArrayPtr total;
    for (const LeafRange& range : homes_[p].leaves) {
      if (!fill_gaps(range)) continue;
      const ArrayImpl& leaf = *range.leaf;
      const auto begin = gradients_.begin() + static_cast<ptrdiff_t>(range.begin);
      const ArrayPtr pending = make_array(with_unreduced(with_reduced(leaf.type, 0), leaf.type->reduced), leaf.slots,
                                          Tensors(begin, begin + static_cast<ptrdiff_t>(leaf.local.size())));
      const ArrayPtr sum = convert(*pending, pending, on_mesh(parameter(p).type, leaf.type->mesh),
                                   {.operation = "gradients", .where = {}, .reason = reason, .path = {}});
      if (!total) {
        total = sum;
        continue;
      }
      for (size_t i = 0; i < total->local.size(); ++i)
        total->local[i] = total->local[i] + in_memory_of(total->type->mesh, sum->local[i]);
    }
    if (!total) {
      total = make_array(parameter(p).type, parameter(p).slots, {});
      for (const at::Tensor& t : parameter(p).local) total->local.push_back(at::zeros_like(t));
    }
    return Array(std::move(total));
  }

  // The axes along which the work on this parameter differed.
  Mask axes_of(size_t p) const {
    Mask axes = 0;
    for (const LeafRange& range : homes_[p].leaves) axes |= range.leaf->type->reduced & ~parameter(p).type->reduced;
    return axes;
  }

  // False if no gradient came to this leaf; else zeros where none came to one of its tensors.
  bool fill_gaps(const LeafRange& range) {
    const auto begin = gradients_.begin() + static_cast<ptrdiff_t>(range.begin);
    const auto end = begin + static_cast<ptrdiff_t>(range.leaf->local.size());
    if (std::none_of(begin, end, is_defined)) return false;
    for (auto g = begin; g != end; ++g)
      if (!g->defined()) *g = at::zeros_like(range.leaf->local[g - begin]);
    return true;
  }

  // Every tensor of a leaf's gradient that adds to this block of the gradient, of those that this process has: all
  // coordinates of the reduced axes that are stored apart and not left pending, the first of every other replicated
  // axis. What is equal along one of the axes to be reduced counts at its first coordinate, so in one process only;
  // what this process's devices have added up counts at their first.
  void add_contributions(const Type& gradient, const LeafRange& range, const MeshImpl* mesh, Mask axes, int block,
                         Tensors& out) const {
    const Type* type = range.leaf->type;
    const Mask equal = axes & ~type->reduced;
    for (size_t axis = 0; mesh && axis < mesh->axes.size(); ++axis)
      if (equal >> axis & 1 && mesh->first[axis] != 0) return;
    if (!type->mesh) return out.push_back(gradients_[range.begin]);
    const Mask apart = type->reduced & range.leaf->slots & ~gradient.reduced;
    Coordinates coordinates(type->mesh);
    unravel(type->mesh, gradient.own(), block, coordinates);
    for (size_t axis = 0; axis < type->mesh->axes.size(); ++axis)
      if ((gradient.unreduced & ~apart) >> axis & 1 && coordinates[axis] != type->mesh->first[axis]) return;
    const Mask summed = apart & ~gradient.unreduced;
    for (int k = 0; k < type->mesh->slots(summed); ++k) {
      unravel(type->mesh, summed, k, coordinates);
      out.push_back(gradients_[range.begin + ravel(type->mesh, range.leaf->slots, coordinates)]);
    }
  }

  Array gradient_of(size_t p) const {
    const ArrayImpl& a = parameter(p);
    const Home& home = homes_[p];
    const Mask slots = home.type == a.type ? a.slots : home.type->slots;
    Tensors local;
    for (int i = 0; i < (home.type->mesh ? home.type->mesh->slots(slots) : 1); ++i)
      local.push_back(
          sums_[home.first_block + project(home.type->mesh, slots, i, home.type->own())].to(a.local[0].scalar_type()));
    ArrayPtr gradient = make_array(home.type, slots, std::move(local));
    gradient->layout = a.layout;
    gradient->detail().path = a.details->path;
    if (a.details->placed && home.type == a.type)
      gradient->details->placed = std::make_unique<NamedSharding>(*a.details->placed);
    return Array(std::move(gradient));
  }

  const std::vector<Array>& shadows_;
  TapeState& tape_;
  std::vector<Home> homes_;             // of each shadow
  Tensors leaves_, gradients_;          // of all leaves
  std::vector<Tensors> contributions_;  // of each distinct block of each gradient
  Tensors sums_;
  GradientBuckets buckets_;
};

}  // namespace

Tape::Tape(const std::vector<Array>& parameters, const GradientOptions& options)
    : state_(opened(options)), guard_(std::make_unique<Guard>(state_.get())) {
  if (options.reduction && !is_floating(*options.reduction))
    fail(ErrorKind::dtype_mismatch, "value_and_grad",
         fmt::format("reduction: {} given, expected a floating type to add up gradients in.",
                     name_of(*options.reduction)));
  for (const Array& x : parameters) shadows_.push_back(shadow_of(x, state_));
  if (const auto& meter = current_meter()) meter->begin_forward();
}

Tape::~Tape() {
  state_->open = false;
  for (const Array& x : shadows_) {
    if (!is_traced(x)) continue;
    Details& details = *x.impl()->details;
    details.tape = nullptr;
    details.leaves.clear();
    details.conversions.clear();
  }
}

std::vector<Array> Tape::gradients(const Array& loss, std::source_location where) {
  const CallerScope caller(where);
  if (const auto& meter = current_meter()) meter->end_forward();
  if (state_->spent)
    fail(ErrorKind::no_gradient, "value_and_grad",
         "the gradients of this tape were computed already: its graph is gone. Open another, or add the losses up.");
  const ArrayPtr root = root_of(loss);
  state_->spent = true;
  Backpropagation backward(shadows_, *state_);
  {
    const Differentiating now(state_.get());
    backward.run(*root);
  }
  if (state_->nested) return backward.finish_recorded();
  at::AutoGradMode off(false);
  return backward.finish();
}

Array detached(const Array& x, std::source_location where) {
  if (x.is_absent()) return x;
  at::AutoGradMode off(false);
  const ArrayImpl& a = materialized(x, "value_and_grad");
  Tensors local;
  for (const at::Tensor& t : a.local) local.push_back(t.detach());
  ArrayPtr plain = make_array(a.type, a.slots, std::move(local));
  plain->layout = a.layout;
  if (!a.type->unreduced && !a.type->reduced) return Array(std::move(plain));
  return Array(convert(*plain, plain, with_unreduced(with_reduced(a.type, 0), 0),
                       {.operation = "loss", .where = where, .reason = handed_out()}));
}

}  // namespace tessera
