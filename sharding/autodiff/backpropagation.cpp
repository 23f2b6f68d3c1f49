// The backward pass of a tape, its sums over processes beside it, and the gradients brought home.
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
#include "sharding/base/environment.h"
#include "sharding/base/fail.h"
#include "sharding/kernels/sum.h"
#include "sharding/placement/cut_further.h"
#include "sharding/redistribution/coalesced.h"
#include "sharding/redistribution/convert.h"
#include "sharding/redistribution/replica_checks.h"

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

// How many blocks of such a gradient this process has.
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
    : shadows_(shadows), tape_(tape), scatters_(weights ? &weights->scatters() : nullptr), homes_(shadows.size()) {
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
  const std::string words = error.what_without_backtrace();
  fail(ErrorKind::invalid_argument, gradients_operation, "LibTorch's backward pass: {}",
       words.substr(0, words.find('\n')));
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
    const Home& home = homes_[p];
    if (!home.is_gathered) gather_contributions(p);
    if (!home.bucket) continue;
    const ArrayImpl& a = parameter(p);
    buckets_.add(*home.bucket, a.type->bytes / item_size(a.type->dtype) * item_size(std::get<DType>(*home.bucket)),
                 a.details->path, home.first_block, home.first_block + home.blocks);
  }
  if (checks) check_parameters();
  sums_ = sum_each(contributions_);
  if (is_cut()) return finish_scattered();
  buckets_.reduce(sums_);
  std::vector<Array> result;
  for (size_t p = 0; p < shadows_.size(); ++p)
    result.push_back(is_traced(shadows_[p]) ? gradient_of(p, homes_[p].type, tensors_of(p)) : Array());
  return result;
}

// A parameter that was never placed has its gradient whole.
const Type* Backpropagation::cut_type_of(size_t p) const {
  const Type* type = with_unreduced(homes_[p].type, 0);
  return parameter(p).type->mesh ? cut_further(type, tape_.options.shard_gradients_over) : type;
}

void Backpropagation::scatter(const std::vector<size_t>& parameters) {
  static const Text reason = lasting_text("each device keeps its part of the gradients");
  std::vector<TransferItem> items;
  for (const size_t p : parameters) {
    const Array pending = gradient_of(p, homes_[p].type, tensors_of(p));
    items.push_back(item_of(*pending.impl(), cut_type_of(p), std::get<DType>(key_of(p))));
    items.back().path = parameter(p).details->path;
  }
  const Provenance cause{gradients_operation, {}, reason, {}};
  scattered_.push_back({parameters, Transfer(std::move(items), {cause, nullptr, nullptr, true})});
  if (scattered_.size() > 2) scattered_[scattered_.size() - 3].arrive();  // two under way: they take memory
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
  for (Scattered& sent : scattered_) {
    sent.arrive();
    for (size_t i = 0; i < sent.arrived.size(); ++i) {
      const size_t p = sent.parameters[i];
      const Type* type = cut_type_of(p);
      result[p] = gradient_of(p, type, as_dtype(sent.arrived[i], type->dtype));
    }
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
  homes_[p].leaves.push_back({leaf, leaves_.size()});
  leaves_.append(tensors.begin(), tensors.end());
}

std::span<at::Tensor> Backpropagation::gradients_of(LeafRange& range) {
  return range.late.empty() ? std::span(gradients_).subspan(range.begin, range.leaf->local.size())
                            : std::span(range.late);
}

// What remat's second runs and the groups of reduce_scatters brought: as if from leaves of their own.
void Backpropagation::add_late_gradients() {
  for (LateGradients& late : std::exchange(tape_.late, {})) {
    const size_t p = place_of_.at(late.parameter.get());
    homes_[p].leaves.push_back({.leaf = late.leaf.get(), .late = std::move(late.gradients)});
    if (chunks_.has(p) && comes_late(p) && begins_early())
      chunks_.arrive(p, [this](const auto& key, const auto& parameters) { begin_chunk(key, parameters); });
  }
}

bool Backpropagation::has_gradient() const {
  const auto came_late = [](const LeafRange& range) {
    return std::any_of(range.late.begin(), range.late.end(), is_defined);
  };
  return std::any_of(gradients_.begin(), gradients_.end(), is_defined) ||
         std::any_of(homes_.begin(), homes_.end(), [&](const Home& home) {
           return home.is_gathered || std::any_of(home.leaves.begin(), home.leaves.end(), came_late);
         });
}

// The axes along which the work on this parameter differed.
AxisSet Backpropagation::axes_of(size_t p) const {
  AxisSet axes = 0;
  for (const LeafRange& range : homes_[p].leaves) axes |= range.leaf->type->reduced & ~parameter(p).type->reduced;
  return axes;
}

// Where the gradient is: the parameter's, or that of the first leaf that has one.
const MeshImpl* Backpropagation::mesh_of(size_t p) const {
  const MeshImpl* mesh = parameter(p).type->mesh;
  for (const LeafRange& range : homes_[p].leaves)
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

// Sums of whole gradients are chunks only where they begin early, between processes; cut ones are on every mesh, so
// that their ledger is the same.
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
    const int64_t blocks = is_cut() ? 1 : blocks_of(type_of(p));  // of a device, or of this process
    chunks_.add(p, key_of(p), blocks * parameter(p).local[0].numel(), *tensors);
  }
  chunks_.close();
}

// What a guard may prevent does not begin before it is asked, and what remat computes again comes late.
bool Backpropagation::begins_early() const { return !is_guarded() && !tape_.anchor.defined(); }

bool Backpropagation::is_shared_by_stages(AxisSet axes, const MeshImpl* mesh) const {
  const MeshImpl* stage = tape_.first_stage;
  return stage && stage->parent == mesh && axes & cut_of(stage);
}

// How often a gradient of the parameter arrives: as a tensor of a leaf, or with its block. None if that is not known
// before.
std::optional<int64_t> Backpropagation::arrivals_of(size_t p) const {
  int64_t arrivals = 0;
  const bool is_late = comes_late(p);
  for (const LeafRange& range : homes_[p].leaves) {
    if (is_late && (range.leaf->direct || !scatters_->expects(*range.leaf))) return std::nullopt;
    arrivals += is_late ? scatters_->expected_of(*range.leaf) : static_cast<int64_t>(range.leaf->local.size());
  }
  return arrivals;
}

// Whether gradients of the parameter are reduce-scattered with their block.
bool Backpropagation::comes_late(size_t p) const {
  const auto is_late = [&](const LeafRange& range) { return scatters_ && scatters_->expects(*range.leaf); };
  return std::any_of(homes_[p].leaves.begin(), homes_[p].leaves.end(), is_late);
}

void Backpropagation::listen() {
  if (!begins_early()) return;
  if (scatters_) scatters_->listen([this] { add_late_gradients(); });
  for (size_t p = 0; p < shadows_.size(); ++p) {
    if (!chunks_.has(p) || comes_late(p)) continue;
    for (const LeafRange& range : homes_[p].leaves)
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
    for (size_t b = 0; b < homes_[p].blocks; ++b) {
      places.push_back(homes_[p].first_block + b);
      lists.push_back(contributions_[places.back()]);
    }
  }
  const Tensors sums = sum_each(lists);
  for (size_t i = 0; i < places.size(); ++i) contributions_[places[i]] = Tensors(1, sums[i]);
  is_cut() ? scatter(parameters) : buckets_.begin(key, places, sums);
}

void Backpropagation::gather_contributions(size_t p) {
  Home& home = homes_[p];
  home.is_gathered = true;
  const ArrayImpl& a = parameter(p);
  std::erase_if(home.leaves, [&](LeafRange& range) { return !fill_gaps(range); });
  const AxisSet axes = axes_of(p);
  const MeshImpl* mesh = mesh_of(p);
  home.type = type_of(p);
  home.bucket = bucket_of(p);
  home.first_block = contributions_.size();
  home.blocks = static_cast<size_t>(blocks_of(home.type));
  contributions_.resize(contributions_.size() + home.blocks);
  at::Tensor nothing;
  for (size_t b = 0; b < home.blocks; ++b) {
    Tensors& list = contributions_[home.first_block + b];
    for (LeafRange& range : home.leaves) add_contributions(*home.type, range, mesh, axes, static_cast<int>(b), list);
    if (list.empty() && !home.type->unreduced) list.push_back(at::zeros_like(a.local[0]));
    if (list.empty()) list.push_back(nothing = nothing.defined() ? nothing : zero_placeholder(a.local[0]));
    bring_to_memory_of(home.type->mesh, list);
    if (home.bucket && std::get<DType>(*home.bucket) != a.type->dtype)
      for (at::Tensor& t : list) t = t.to(scalar_type(std::get<DType>(*home.bucket)));
  }
}

// Every leaf's gradient as an array, resharded to the parameter's sharding and added. A parameter that was never placed
// has leaves on the meshes of the other operands, and one on no mesh if it is used alone. All gradients are added on
// the mesh, and the sum is returned on no mesh.
Array Backpropagation::recorded_gradient(size_t p) {
  static const Text reason = lasting_text("the work differs along these axes");
  ArrayPtr total;
  for (LeafRange& range : homes_[p].leaves) {
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

// False if no gradient came to this leaf; else zeros where none came to one of its tensors. What a stage of another
// process read gets zeros here.
bool Backpropagation::fill_gaps(LeafRange& range) {
  const std::span<at::Tensor> gradients = gradients_of(range);
  if (std::none_of(gradients.begin(), gradients.end(), is_defined) &&
      !is_shared_by_stages(range.leaf->type->reduced, range.leaf->type->mesh))
    return false;
  for (size_t i = 0; i < gradients.size(); ++i)
    if (!gradients[i].defined()) gradients[i] = at::zeros_like(range.leaf->local[i]);
  return true;
}

// Every tensor of a leaf's gradient that adds to this block of the gradient, of those that this process has: all
// coordinates of the reduced axes that are stored apart and not left pending, the first of every other replicated
// axis. What is equal along one of the axes to be reduced counts at its first coordinate, so in one process only;
// what this process's devices have added up counts at their first.
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

// Of the gradient of p as its contributions add up to it: one for each of its slots.
Tensors Backpropagation::tensors_of(size_t p) const {
  const ArrayImpl& a = parameter(p);
  const Home& home = homes_[p];
  const AxisSet slots = home.type == a.type ? a.slots : home.type->slots;
  Tensors local;
  for (int i = 0; i < (home.type->mesh ? home.type->mesh->slots(slots) : 1); ++i) {
    const size_t block = home.first_block + project(home.type->mesh, slots, i, home.type->own());
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
