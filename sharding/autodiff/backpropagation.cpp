// The backward pass of a tape, with sums over processes during it, and the gradients with the parameters' shardings.
#include "sharding/autodiff/backpropagation.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "sharding/accounting/communication_event.h"
#include "sharding/array/abstract_tensor.h"
#include "sharding/array/array_impl.h"
#include "sharding/array/out_of_memory.h"
#include "sharding/base/environment.h"
#include "sharding/base/fail.h"
#include "sharding/base/text.h"
#include "sharding/kernels/tensors.h"
#include "sharding/placement/type.h"
#include "sharding/redistribution/coalesced.h"
#include "sharding/redistribution/communicate.h"
#include "sharding/redistribution/convert.h"

namespace tessera::detail {
namespace {

bool is_defined(const at::Tensor& t) { return t.defined(); }

// Returns the value of a replicated array as an array on no mesh. The cotangent is equal on all devices.
ArrayPtr off_mesh(const ArrayPtr& a, const Type* type) {
  Tensors value(1, in_memory_of(nullptr, a->local[0]).detach());
  record_function(
      gradients_operation, a->local, value,
      [mesh = a->type->mesh, n = a->local.size()](Tensors gradients) {
        Tensors each(n, gradients[0]);
        bring_to_memory_of(mesh, each);
        return each;
      },
      [](const Tensors& gradients) { return Tensors(1, in_memory_of(nullptr, gradients[0])); });
  return make_array(type, std::move(value));
}

// Returns the number of blocks of such a gradient in this process.
int64_t blocks_of(const Type* type) { return type->mesh ? type->mesh->slots(type->mesh->distinct(type->own())) : 1; }

}  // namespace

bool is_traced(const Array& shadow) {
  return !shadow.is_absent() && shadow.impl()->details && shadow.impl()->details->tape;
}

void fail_no_gradient() {
  fail(ErrorKind::no_gradient, "value_and_grad",
       "no gradient reaches the model: the loss does not depend on the model that the function received. Compute it "
       "from the argument, not from a captured model.");
}

Backpropagation::Backpropagation(const std::vector<Array>& shadows, TapeState& tape, WeightPolicy* weights)
    : shadows_(shadows), tape_(tape), scatters_(weights ? &weights->scatters() : nullptr), targets_(shadows.size()) {
  for (size_t p = 0; p < shadows.size(); ++p)
    if (is_traced(shadows[p])) {
      place_of_[shadows[p].impl().get()] = p;
      const ArrayImpl& shadow = materialized(shadows[p], gradients_operation);
      for (const ArrayPtr& leaf : shadow.details->leaves) add_leaf(p, leaf.get(), leaf->local);
    }
  if (tape_.anchor.defined()) leaves_.push_back(tape_.anchor);
  plan_chunks();
}

void Backpropagation::run(const ArrayImpl& root) try {
  if (leaves_.empty()) fail_no_gradient();
  Tensors seeds;
  for (const at::Tensor& t : root.local) seeds.push_back(at::ones_like(t));
  gradients_.resize(leaves_.size());
  metered_stage() = stage_number(root.type->mesh);
  listen();
  gradients_ = detail::gradients(root.local, seeds, leaves_, tape_.nested);
  if (scatters_) {
    scatters_->finish();
    scatters_->listen(nullptr);
  }
  add_late_gradients();
  if (!has_gradient()) fail_no_gradient();
} catch (const c10::Error& error) {
  check_allocation(error, gradients_operation, {}, "for LibTorch's backward pass", root.local[0].device());
  fail(ErrorKind::invalid_argument, gradients_operation, "LibTorch's backward pass: {}",
       first_line(error.what_without_backtrace()));
}

std::vector<Array> Backpropagation::finish_recorded() {
  std::vector<Array> result;
  for (size_t p = 0; p < shadows_.size(); ++p)
    result.push_back(is_traced(shadows_[p]) ? recorded_gradient(p) : Array());
  return result;
}

std::vector<Array> Backpropagation::finish() {
  if (is_cut()) chunks_.begin_rest([this](const auto& key, const auto& parameters) { begin_chunk(key, parameters); });
  for (size_t p = 0; p < shadows_.size(); ++p) {
    if (!is_traced(shadows_[p])) continue;
    const ParameterGradient& target = targets_[p];
    if (!target.is_gathered) gather_contributions(p);
    if (!target.bucket) continue;
    const ArrayImpl& a = parameter(p);
    buckets_.add(*target.bucket, a.type->bytes / item_size(a.type->dtype) * item_size(std::get<DType>(*target.bucket)),
                 a.details->path, target.first_block, target.first_block + target.blocks);
  }
  if (checks) check_parameters();
  sums_ = sum_each(contributions_);
  if (is_cut()) return finish_scattered();
  buckets_.reduce(sums_);
  std::vector<Array> result;
  for (size_t p = 0; p < shadows_.size(); ++p)
    result.push_back(is_traced(shadows_[p]) ? gradient_of(p, targets_[p].type, tensors_of(p)) : Array());
  return result;
}

// Returns the type of the gradient, sharded over shard_gradients_over if the parameter is placed.
const Type* Backpropagation::cut_type_of(size_t p) const {
  const Type* type = with_unreduced(targets_[p].type, 0);
  return parameter(p).type->mesh ? cut_further(type, tape_.options.shard_gradients_over) : type;
}

void Backpropagation::scatter(const std::vector<size_t>& parameters) {
  static const Text reason = lasting_text("each device keeps its shard of the gradients");
  std::vector<TransferItem> items;
  for (const size_t p : parameters) {
    const Array pending = gradient_of(p, targets_[p].type, tensors_of(p));
    items.push_back(item_of(*pending.impl(), cut_type_of(p), std::get<DType>(key_of(p))));
    items.back().path = parameter(p).details->path;
  }
  const Provenance cause{gradients_operation, {}, reason, {}};
  scattered_.push_back({parameters, Transfer(std::move(items), {cause, nullptr, nullptr, true})});
  if (scattered_.size() > 2) scattered_[scattered_.size() - 3].transfer.wait();  // limits memory: two in flight
}

std::vector<Array> Backpropagation::finish_scattered() {
  std::vector<bool> is_sent(shadows_.size());
  for (const Scattered& sent : scattered_)
    for (const size_t p : sent.parameters) is_sent[p] = true;
  std::vector<size_t> rest;
  for (size_t p = 0; p < shadows_.size(); ++p)
    if (is_traced(shadows_[p]) && !is_sent[p]) rest.push_back(p);
  if (!rest.empty()) scatter(rest);
  std::vector<Array> result(shadows_.size());
  for (Scattered& sent : scattered_)
    for (size_t i = 0; i < sent.parameters.size(); ++i) {
      const size_t p = sent.parameters[i];
      const Type* type = cut_type_of(p);
      result[p] = gradient_of(p, type, as_dtype(sent.transfer.take(i), type->dtype));
    }
  return result;
}

void Backpropagation::check_parameters() const {
  for (size_t p = 0; p < shadows_.size(); ++p) {
    if (!is_traced(shadows_[p])) continue;
    const ArrayImpl& a = parameter(p);
    const Text path = a.details ? a.details->path : nullptr;
    check_replicas_across_processes(a.type, a.local, {.operation = gradients_operation, .path = path});
  }
}

void Backpropagation::add_leaf(size_t p, const ArrayImpl* leaf, const Tensors& tensors) {
  targets_[p].leaves.push_back({leaf, leaves_.size()});
  leaves_.append(tensors.begin(), tensors.end());
}

std::span<at::Tensor> Backpropagation::gradients_of(LeafRange& range) {
  return range.late.empty() ? std::span(gradients_).subspan(range.begin, range.leaf->local.size())
                            : std::span(range.late);
}

// Adds gradients from remat's second runs and from grouped reduce_scatters, each as if from a separate leaf.
void Backpropagation::add_late_gradients() {
  for (LateGradients& late : std::exchange(tape_.late, {})) {
    const size_t p = place_of_.at(late.parameter.get());
    targets_[p].leaves.push_back({.leaf = late.leaf.get(), .late = std::move(late.gradients)});
    if (chunks_.has(p) && comes_late(p) && begins_early())
      chunks_.arrive(p, [this](const auto& key, const auto& parameters) { begin_chunk(key, parameters); });
  }
}

bool Backpropagation::has_gradient() const {
  const auto came_late = [](const LeafRange& range) {
    return std::any_of(range.late.begin(), range.late.end(), is_defined);
  };
  return std::any_of(gradients_.begin(), gradients_.end(), is_defined) ||
         std::any_of(targets_.begin(), targets_.end(), [&](const ParameterGradient& target) {
           return target.is_gathered || std::any_of(target.leaves.begin(), target.leaves.end(), came_late);
         });
}

// Returns the axes along which the work on this parameter differed.
AxisSet Backpropagation::axes_of(size_t p) const {
  AxisSet axes = 0;
  for (const LeafRange& range : targets_[p].leaves) axes |= range.leaf->type->reduced & ~parameter(p).type->reduced;
  return axes;
}

// Returns the gradient's mesh: the parameter's mesh, or the mesh of the first leaf that has one.
const MeshImpl* Backpropagation::mesh_of(size_t p) const {
  const MeshImpl* mesh = parameter(p).type->mesh;
  for (const LeafRange& range : targets_[p].leaves)
    if (!mesh) mesh = range.leaf->type->mesh;
  return mesh;
}

const Type* Backpropagation::type_of(size_t p) const {
  const Type* type = parameter(p).type;
  const AxisSet axes = axes_of(p);
  return (tape_.options.reduce && !is_cut()) || !axes ? type : with_unreduced(on_mesh(type, mesh_of(p)), axes);
}

GradientBuckets::Key Backpropagation::key_of(size_t p) const {
  return {mesh_of(p), axes_of(p), tape_.options.reduce_dtype.value_or(parameter(p).type->dtype)};
}

std::optional<GradientBuckets::Key> Backpropagation::bucket_of(size_t p) const {
  if (!axes_of(p) || !tape_.options.reduce || is_cut()) return std::nullopt;
  return key_of(p);
}

// Plans the chunks (gradient_buckets.h). Unsharded gradients get chunks only if their all-reduces cross processes and
// may start before the pass ends. Sharded gradients get chunks on every mesh, so that all ledgers are equal.
void Backpropagation::plan_chunks() {
  if (tape_.nested || !(begins_early() || is_cut())) return;
  std::optional<GradientBuckets::Key> last_late;
  std::string block;
  for (size_t p = shadows_.size(); p-- > 0;) {
    const std::optional<int64_t> tensors = is_traced(shadows_[p]) && axes_of(p) ? arrivals_of(p) : std::nullopt;
    if (!tensors || is_shared_by_stages(axes_of(p), mesh_of(p))) continue;
    if (!is_cut() && !(tape_.options.reduce && axes_of(p) & mesh_of(p)->crossing())) continue;
    if (comes_late(p)) {
      const Text& path = parameter(p).details->path;
      const std::string own = path ? block_of(*path) : "";
      if (last_late && (own != block || own.empty())) chunks_.cut(*last_late);
      last_late = key_of(p);
      block = own;
    }
    const int64_t blocks = is_cut() ? 1 : blocks_of(type_of(p));  // blocks of a device, or of this process
    chunks_.add(p, key_of(p), blocks * parameter(p).local[0].numel(), *tensors);
  }
  chunks_.close();
}

// Returns false under a guard, which must be asked before any communication starts, and under remat, whose gradients
// come late.
bool Backpropagation::begins_early() const { return !is_guarded() && !tape_.anchor.defined(); }

bool Backpropagation::is_shared_by_stages(AxisSet axes, const MeshImpl* mesh) const {
  const MeshImpl* stage = tape_.first_stage;
  return stage && stage->parent == mesh && axes & cut_of(stage);
}

// Returns how often a gradient of the parameter arrives: as a tensor of a leaf, or with its block. Returns nullopt if
// the number is not known in advance.
std::optional<int64_t> Backpropagation::arrivals_of(size_t p) const {
  int64_t arrivals = 0;
  const bool is_late = comes_late(p);
  for (const LeafRange& range : targets_[p].leaves) {
    if (is_late && (range.leaf->direct || !scatters_->expects(*range.leaf))) return std::nullopt;
    arrivals += is_late ? scatters_->expected_of(*range.leaf) : static_cast<int64_t>(range.leaf->local.size());
  }
  return arrivals;
}

// Returns true if gradients of the parameter are reduce-scattered with their block.
bool Backpropagation::comes_late(size_t p) const {
  const auto is_late = [&](const LeafRange& range) { return scatters_ && scatters_->expects(*range.leaf); };
  return std::any_of(targets_[p].leaves.begin(), targets_[p].leaves.end(), is_late);
}

void Backpropagation::listen() {
  if (!begins_early()) return;
  if (scatters_) scatters_->listen([this] { add_late_gradients(); });
  for (size_t p = 0; p < shadows_.size(); ++p) {
    if (!chunks_.has(p) || comes_late(p)) continue;
    for (const LeafRange& range : targets_[p].leaves)
      for (size_t i = range.begin; i < range.begin + range.leaf->local.size(); ++i)
        hooks_.add(leaves_[i], [this, p, i](const at::Tensor& gradient) {
          if (!gradient.defined()) return;
          gradients_[i] = gradient;
          chunks_.arrive(p, [this](const auto& key, const auto& parameters) { begin_chunk(key, parameters); });
        });
  }
}

void Backpropagation::begin_chunk(const GradientBuckets::Key& key, const std::vector<size_t>& parameters) {
  const at::AutoGradMode off(false);
  std::vector<size_t> places;
  std::vector<Tensors> lists;
  for (const size_t p : parameters) {
    gather_contributions(p);
    for (size_t b = 0; b < targets_[p].blocks; ++b) {
      places.push_back(targets_[p].first_block + b);
      lists.push_back(contributions_[places.back()]);
    }
  }
  const Tensors sums = sum_each(lists);
  for (size_t i = 0; i < places.size(); ++i) contributions_[places[i]] = Tensors(1, sums[i]);
  is_cut() ? scatter(parameters) : buckets_.begin(key, places, sums);
}

void Backpropagation::gather_contributions(size_t p) {
  ParameterGradient& target = targets_[p];
  target.is_gathered = true;
  const ArrayImpl& a = parameter(p);
  std::erase_if(target.leaves, [&](LeafRange& range) { return !fill_gaps(range); });
  const AxisSet axes = axes_of(p);
  const MeshImpl* mesh = mesh_of(p);
  target.type = type_of(p);
  target.bucket = bucket_of(p);
  target.first_block = contributions_.size();
  target.blocks = static_cast<size_t>(blocks_of(target.type));
  contributions_.resize(contributions_.size() + target.blocks);
  at::Tensor nothing;
  for (size_t b = 0; b < target.blocks; ++b) {
    Tensors& list = contributions_[target.first_block + b];
    for (LeafRange& range : target.leaves)
      add_contributions(*target.type, range, mesh, axes, static_cast<int>(b), list);
    if (list.empty() && !target.type->unreduced) list.push_back(at::zeros_like(a.local[0]));
    if (list.empty()) list.push_back(nothing = nothing.defined() ? nothing : zero_placeholder(a.local[0]));
    bring_to_memory_of(target.type->mesh, list);
    if (target.bucket && std::get<DType>(*target.bucket) != a.type->dtype)
      for (at::Tensor& t : list) t = t.to(scalar_type(std::get<DType>(*target.bucket)));
  }
}

// Reshards every leaf's gradient to the parameter's sharding and adds them. A parameter that was never placed has one
// leaf per mesh of the operands with which it is used, and a leaf without a mesh if it is also used alone. All
// gradients are added on the mesh. The sum is returned without a mesh.
Array Backpropagation::recorded_gradient(size_t p) {
  static const Text reason = lasting_text("the work is split over these axes");
  ArrayPtr total;
  for (LeafRange& range : targets_[p].leaves) {
    if (!fill_gaps(range)) continue;
    const ArrayImpl& leaf = *range.leaf;
    const std::span<at::Tensor> given = gradients_of(range);
    const ArrayPtr pending = make_array(with_unreduced(with_reduced(leaf.type, 0), leaf.type->reduced), leaf.slots,
                                        Tensors(given.begin(), given.end()));
    const ArrayPtr sum = convert(*pending, pending, on_mesh(parameter(p).type, mesh_of(p)),
                                 {.operation = "gradients", .where = {}, .reason = reason, .path = {}});
    if (!total) {
      total = sum;
      continue;
    }
    for (size_t i = 0; i < total->local.size(); ++i)
      total->local[i] = total->local[i].add(in_memory_of(total->type->mesh, sum->local[i]));
  }
  if (!total) {
    total = make_array(parameter(p).type, parameter(p).slots, {});
    for (const at::Tensor& t : parameter(p).local) total->local.push_back(at::zeros_like(t));
  }
  if (total->type->mesh && !parameter(p).type->mesh) total = off_mesh(total, parameter(p).type);
  return Array(std::move(total));
}

// Returns false if no gradient reached this leaf; else fills in zeros for tensors without one. A parameter that a stage
// of another process read also gets zeros here.
bool Backpropagation::fill_gaps(LeafRange& range) {
  const std::span<at::Tensor> gradients = gradients_of(range);
  if (std::none_of(gradients.begin(), gradients.end(), is_defined) &&
      !is_shared_by_stages(range.leaf->type->reduced, range.leaf->type->mesh))
    return false;
  for (size_t i = 0; i < gradients.size(); ++i)
    if (!gradients[i].defined()) gradients[i] = at::zeros_like(range.leaf->local[i]);
  return true;
}

// Adds every tensor of a leaf's gradient that contributes to this block and that this process has. Along reduced axes
// that are stored separately and not left unreduced, these are the tensors at all coordinates. Along every other
// replicated axis it is the tensor at the first coordinate. A gradient that is equal along a reduced axis counts only
// at the first coordinate, so in one process only. A sum over this process's devices counts at their first coordinate.
void Backpropagation::add_contributions(const Type& gradient, LeafRange& range, const MeshImpl* mesh, AxisSet axes,
                                        int block, Tensors& out) {
  const Type* type = range.leaf->type;
  const AxisSet equal = axes & ~type->reduced;
  for (size_t axis = 0; mesh && axis < mesh->axes.size(); ++axis)
    if (equal >> axis & 1 && mesh->first[axis] != 0) return;
  if (!mesh) return out.push_back(gradients_of(range)[0]);
  const AxisSet apart = type->reduced & range.leaf->slots & ~gradient.reduced;
  Coordinates coordinates(mesh);
  unravel(mesh, gradient.own(), block, coordinates);
  for (size_t axis = 0; axis < mesh->axes.size(); ++axis)
    if ((gradient.unreduced & ~apart) >> axis & 1 && coordinates[axis] != mesh->first[axis]) return;
  if (!type->mesh) return out.push_back(gradients_of(range)[0]);
  const AxisSet summed = apart & ~gradient.unreduced;
  for (int k = 0; k < type->mesh->slots(summed); ++k) {
    unravel(type->mesh, summed, k, coordinates);
    out.push_back(gradients_of(range)[ravel(type->mesh, range.leaf->slots, coordinates)]);
  }
}

// Returns the gradient of p from its summed contributions: one tensor per slot.
Tensors Backpropagation::tensors_of(size_t p) const {
  const ArrayImpl& a = parameter(p);
  const ParameterGradient& target = targets_[p];
  const AxisSet slots = target.type == a.type ? a.slots : target.type->slots;
  Tensors local;
  for (int i = 0; i < (target.type->mesh ? target.type->mesh->slots(slots) : 1); ++i) {
    const size_t block = target.first_block + project(target.type->mesh, slots, i, target.type->own());
    local.push_back((sums_.empty() ? contributions_[block][0] : sums_[block]).to(a.local[0].scalar_type()));
  }
  return local;
}

Array Backpropagation::gradient_of(size_t p, const Type* type, Tensors local) const {
  const ArrayImpl& a = parameter(p);
  ArrayPtr gradient = make_array(type, type == a.type ? a.slots : type->slots, std::move(local));
  gradient->mesh_rules = a.mesh_rules;
  gradient->detail().path = a.details->path;
  if (a.details->placed && type == a.type)
    gradient->details->placed = std::make_unique<NamedSharding>(*a.details->placed);
  return Array(std::move(gradient));
}

}  // namespace tessera::detail
