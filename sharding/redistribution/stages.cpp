// The three moves between stages, each recorded as one function of the autograd graph.
#include "sharding/redistribution/stages.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "sharding/array/abstract_tensor.h"
#include "sharding/array/autograd.h"
#include "sharding/array/tape_state.h"
#include "sharding/base/fail.h"
#include "sharding/base/thread_state.h"
#include "sharding/kernels/tensors.h"
#include "sharding/placement/resolver.h"
#include "sharding/redistribution/communicate.h"

namespace tessera::detail {

const Type* type_on(const Type* type, const MeshImpl* mesh) {
  if (type->mesh == mesh) return type;
  const AxisSet cut = cut_of(mesh);
  TypeKey key = *type;
  key.mesh = mesh;
  key.unreduced &= ~cut, key.reduced &= ~cut, key.varying &= ~cut;
  for (DimAxes& dim : key.dims) {
    DimAxes kept;
    for (const int axis : dim)
      if (!(cut >> axis & 1)) kept.push_back(axis);
    dim = kept;
  }
  return intern(std::move(key));
}

const MeshRulesImpl* mesh_rules_on(const MeshRulesImpl* mesh_rules, const MeshImpl* mesh) {
  if (!mesh_rules || MeshRules(mesh_rules).mesh().impl() == mesh) return mesh_rules;
  thread_local BoundedCache<std::map<std::pair<const MeshRulesImpl*, const MeshImpl*>, const MeshRulesImpl*>, 1024>
      known;
  return known.get(std::pair(mesh_rules, mesh), [&] { return on_other_mesh(MeshRules(mesh_rules), Mesh(mesh)).impl(); })
      .second;
}

namespace {

// Returns the number of virtual stages from a virtual stage of `from` to the next one of `to`; 0 if the stages are
// equal.
int64_t distance(int64_t from, int64_t to, int64_t num_stages) {
  return ((to - from) % num_stages + num_stages) % num_stages;
}

const MeshImpl* later(const MeshImpl* a, const MeshImpl* b) { return !a || a->cut_at < b->cut_at ? b : a; }

// Returns the stage for operands that are all on the whole mesh.
const MeshImpl* first_stage_for(const ArrayImpl* const* operands, int n, const MeshImpl* mesh) {
  const TapeState* tape = current_tape();
  if (!tape || !tape->first_stage || tape->first_stage->parent != mesh) return nullptr;
  const bool has_activation = std::any_of(operands, operands + n, [](const ArrayImpl* a) { return !a->weight; });
  const bool recorded = std::any_of(operands, operands + n, [](const ArrayImpl* a) { return wants_gradient(*a); });
  return has_activation && recorded ? tape->first_stage : nullptr;
}

}  // namespace

const MeshImpl* stage_of(const ArrayImpl* const* operands, int n) {
  const MeshImpl *first = nullptr, *last = nullptr, *last_with_weight = nullptr;
  bool is_mixed = false;
  for (int i = 0; i < n; ++i) {
    const MeshImpl* mesh = operands[i]->type->mesh;
    if (!mesh) continue;
    if (!first) first = mesh;
    if (mesh != first && !are_stages(first, mesh)) return nullptr;
    is_mixed |= mesh != first;
    if (!mesh->parent) continue;
    last = current_walk() ? current_walk()->later_of(last, mesh) : later(last, mesh);
    if (operands[i]->weight) last_with_weight = later(last_with_weight, mesh);
  }
  if (!is_mixed) return first && !first->parent ? first_stage_for(operands, n, first) : nullptr;
  return last_with_weight ? last_with_weight : last;
}

const MeshImpl* first_stage_of(const std::vector<Array>& arrays) {
  const MeshImpl* first = nullptr;
  for (const Array& x : arrays)
    if (const ArrayPtr& a = x.impl(); a && a->weight && cut_of(a->type->mesh))
      if (!first || a->type->mesh->cut_at < first->cut_at) first = a->type->mesh;
  return first;
}

namespace {

Tensors without_data(const Type* type) { return {abstract_block(type)}; }

// Returns, for each tensor of the sub-mesh, its index among the whole mesh's tensors, which are stored over `slots`.
std::vector<int> places_in_whole(const Type* part, const MeshImpl* whole, AxisSet slots) {
  const MeshImpl* mesh = part->mesh;
  std::vector<int> places;
  for (int i = 0; i < mesh->slots(part->slots); ++i) {
    Coordinates coordinates(whole);
    unravel(mesh, part->slots, i, coordinates);
    coordinates[mesh->cut_axis] = mesh->cut_at;
    places.push_back(ravel(whole, slots, coordinates));
  }
  return places;
}

ArrayPtr made_from(const ArrayImpl& a, const Type* type, Tensors local) {
  ArrayPtr made = make_array(type, std::move(local));
  made->weight = a.weight;
  made->mesh_rules = mesh_rules_on(a.mesh_rules, type->mesh);
  if (a.details && a.details->path) made->detail().path = a.details->path;
  return made;
}

// Returns the gradient terms of a process without a device of the stage. A leaf gets an undefined tensor, which a tape
// fills in.
Tensors no_gradients(const Tensors& like) {
  Tensors none(like.size());
  for (size_t i = 0; i < like.size(); ++i)
    if (!is_leaf(like[i])) none[i] = zero_placeholder(like[i]);
  return none;
}

// ---- from the whole mesh to a stage: each device already has its blocks

ArrayPtr part_of(const ArrayImpl& a, const ArrayPtr& start, const MeshImpl* stage, const Provenance& cause) {
  const Type* part = type_on(start->type, stage);
  const std::vector<int> places =
      stage->elsewhere ? std::vector<int>() : places_in_whole(part, start->type->mesh, start->slots);
  Tensors local = stage->elsewhere ? without_data(part) : Tensors();
  for (const int place : places) local.push_back(start->local[place].detach());
  record_function(
      cause.operation, start->local, local,
      [start, places](const Tensors& gradients) {
        Tensors all = no_gradients(start->local);
        for (size_t i = 0; i < places.size(); ++i) all[places[i]] = gradients[i];
        return all;
      },
      [part, places](const Tensors& gradients) {
        if (places.empty()) return without_data(part);
        Tensors taken;
        for (const int place : places) taken.push_back(gradients[place]);
        return taken;
      });
  return made_from(a, part, std::move(local));
}

// ---- from one stage to another

Tensors carried(const Type* from, const Type* to, const Tensors& x, const Provenance& cause, bool in_backward_pass) {
  const at::AutoGradMode off(false);
  metered_stage() = stage_number(to->mesh);
  const MeshImpl* whole = from->mesh->parent;
  const AxisSet axes = cut_of(from->mesh);
  return communicate(
      [&] {
        return event_of(Collective::permute, whole, axes, to->bytes, {cause, from, to, in_backward_pass});
      },
      [&] {
        return whole->engine->pass(from, to, x, {"permute", cause.where, whole->kept_names(axes)});
      });
}

void check_direction(const Type* from, const MeshImpl* stage, const Provenance& cause) {
  const std::string& axis = stage->axes[stage->cut_axis].name;
  if (!goes_forward_only() || stage->cut_at > from->mesh->cut_at) return;
  fail(ErrorKind::invalid_argument, cause.operation,
       "{} would go back from {}[{}] to {}[{}], where a parameter is placed. Under one_f_one_b activations go to later "
       "stages only: leave a parameter that several stages use on all stages, or use gpipe.",
       from->to_string(), axis, from->mesh->cut_at, axis, stage->cut_at);
}

ArrayPtr passed_on(const ArrayImpl& a, const ArrayPtr& start, const MeshImpl* stage, Provenance cause) {
  check_direction(start->type, stage, cause);
  const int64_t reached = current_walk() ? current_walk()->go_to(start->type->mesh, stage, cause) : 0;
  const Type* to = type_on(start->type, stage);
  cause.reason = as_text(fmt::format("the activation is sent from {0}={1} to {0}={2}",
                                     stage->axes[stage->cut_axis].name, start->type->mesh->cut_at, stage->cut_at));
  const Type* from = start->type;
  Tensors local = carried(from, to, start->local, cause, false);
  record_function(
      cause.operation, start->local, local,
      [=](const Tensors& g) {
        if (current_walk()) current_walk()->go_back(reached, from->mesh);
        return carried(to, from, g, cause, true);
      },
      [=](const Tensors& g) { return carried(from, to, g, cause, true); });
  return made_from(a, to, std::move(local));
}

// ---- from a stage to the whole mesh

// Returns a partial sum over the stages' axis, in which only this stage's term has the value.
ArrayPtr to_whole_mesh(const ArrayImpl& a, const ArrayPtr& start, const Provenance& cause) {
  const MeshImpl *stage = start->type->mesh, *whole = stage->parent;
  const Type* type = with_unreduced(type_on(start->type, whole), cut_of(stage));
  const std::vector<int> places =
      stage->elsewhere ? std::vector<int>() : places_in_whole(start->type, whole, type->slots);
  const auto forward = [=](const Tensors& x) {
    if (whole->abstract) return without_data(type);
    Tensors all(whole->slots(type->slots));
    for (size_t i = 0; i < places.size(); ++i) all[places[i]] = x[i].detach();
    for (at::Tensor& t : all)
      if (!t.defined())
        t = at::full(type->local, no_term, at::TensorOptions(scalar_type(type->dtype)).device(whole->device));
    return all;
  };
  Tensors local = forward(start->local);
  record_function(
      cause.operation, start->local, local,
      [=, part = start->type](const Tensors& gradients) {
        if (whole->abstract || stage->elsewhere) return without_data(part);
        Tensors taken;
        for (const int place : places) taken.push_back(gradients[place]);
        return taken;
      },
      forward);
  return made_from(a, type, std::move(local));
}

}  // namespace

const Type* leaving_type(const ArrayImpl& a, const Type* to, bool recorded) {
  const AxisSet cut = cut_of(to->mesh);
  const Type* plain = with_unreduced(a.type, 0);
  if (a.type->mesh->parent || !cut) return with_reduced(plain, 0);
  TypeKey key = *type_on(plain, to->mesh);
  key.mesh = a.type->mesh;
  const AxisSet own = axis_set_of(key.dims) | key.varying;
  key.reduced = recorded ? (key.reduced | to->reduced | cut) & ~own : 0;
  return intern(std::move(key));
}

bool& goes_forward_only() {
  thread_local bool only = false;
  return only;
}

std::atomic<int64_t>& stage_messages() {
  static std::atomic<int64_t> count = 0;
  return count;
}

bool& has_stray_messages() {
  thread_local bool has_them = false;
  return has_them;
}

// ---- virtual stages

VirtualStageWalk*& current_walk() {
  thread_local VirtualStageWalk* walk = nullptr;
  return walk;
}

VirtualStageWalk::VirtualStageWalk(const Stages& stages, std::function<void()> suspend)
    : stages_(stages), suspend_(std::move(suspend)), next_own_(stages.first + stages.count) {}

const MeshImpl* VirtualStageWalk::later_of(const MeshImpl* a, const MeshImpl* b) const {
  return a && distance(a->cut_at, at_, stages_.count) < distance(b->cut_at, at_, stages_.count) ? a : b;
}

int64_t VirtualStageWalk::go_to(const MeshImpl* from, const MeshImpl* stage, const Provenance& cause) {
  const std::string& axis = stage->axes[stage->cut_axis].name;
  if (is_backward_)
    fail(ErrorKind::invalid_argument, cause.operation,
         "an activation would be sent to {}[{}] again in the backward pass of an interleaved pipeline. Apply remat to "
         "layers of one stage.",
         axis, stage->cut_at);
  const int64_t n = stages_.count, next = at_ + distance(at_, stage->cut_at, n);
  if (next >= n * stages_.virtual_each || next < distance(from->cut_at, stage->cut_at, n))
    fail(
        ErrorKind::invalid_argument, cause.operation,
        "an activation would go back from {0}[{1}] to {0}[{2}], expected num_virtual_stages = {3} visits of each stage "
        "at most. Place the layers with interleaved(\"{0}\", {3}), and leave a parameter that several stages use on "
        "all stages.",
        axis, from->cut_at, stage->cut_at, stages_.virtual_each);
  for (; next >= next_own_; next_own_ += n) suspend_();
  return at_ = next;
}

void VirtualStageWalk::go_back(int64_t reached, const MeshImpl* stage) {
  const int64_t previous = reached - distance(stage->cut_at, reached, stages_.count);
  for (; previous <= next_own_; next_own_ -= stages_.count) suspend_();
}

void VirtualStageWalk::end_forward() {
  const int64_t n = stages_.count, visits = at_ / n + 1;
  if (n > 1 && visits < stages_.virtual_each)
    fail(ErrorKind::invalid_argument, "pipeline",
         "num_virtual_stages: {} given, but the layers of each stage are {}. Place them with interleaved(mesh_axis, "
         "{}), or give the number of their rule.",
         stages_.virtual_each, visits == 1 ? "together" : fmt::format("in {} blocks", visits), stages_.virtual_each);
  is_backward_ = true;
  next_own_ = stages_.last + (stages_.virtual_each - 2) * n;
}

ArrayPtr moved_between_stages(const ArrayImpl& a, const ArrayPtr& start, const MeshImpl* to, const Provenance& cause) {
  if (!to->parent) return to_whole_mesh(a, start, cause);
  return start->type->mesh->parent ? passed_on(a, start, to, cause) : part_of(a, start, to, cause);
}

}  // namespace tessera::detail
