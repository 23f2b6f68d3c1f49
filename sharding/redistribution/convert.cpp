// Looks up an array in another sharding, or routes, transfers and records its conversion.
#include "sharding/redistribution/convert.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <functional>
#include <optional>

#include "sharding/array/autograd.h"
#include "sharding/array/out_of_memory.h"
#include "sharding/array/tape_state.h"
#include "sharding/base/caller.h"
#include "sharding/redistribution/resharding.h"
#include "sharding/redistribution/route.h"
#include "sharding/redistribution/stages.h"

namespace tessera::detail {
namespace {

// Returns the leaf of a tape's parameter that is reduced over these axes.
ArrayPtr leaf(ArrayImpl& a, const MeshImpl* mesh, AxisSet reduced) {
  const Type* type = with_reduced(on_mesh(a.type, reduced ? mesh : a.type->mesh), a.type->reduced | reduced);
  for (const ArrayPtr& known : a.detail().leaves)
    if (known->type == type) return known;
  Tensors tensors;
  if (const auto outside = a.details->tape->outside.find(&a); outside != a.details->tape->outside.end()) {
    const ArrayPtr value = convert(*outside->second, outside->second, type, {.operation = "value_and_grad"});
    for (const at::Tensor& t : value->local) tensors.push_back(t.view_as(t));
  } else {
    for (int i = 0; i < (type->mesh ? type->mesh->slots(type->slots) : 1); ++i)
      tensors.push_back(in_memory_of(type->mesh, a.local[project(type->mesh, type->slots, i, a.slots)]));
    tensors = make_leaves(tensors);
  }
  ArrayPtr made = make_array(type, std::move(tensors));
  made->weight = true;
  made->mesh_rules = a.mesh_rules;
  a.detail().leaves.push_back(made);
  return made;
}

// Returns the array at which a differentiable conversion starts:
// - for a parameter, its autograd leaf with the reduced axes of `to`, so that its gradient is reduced with all others
// - for a cast of a parameter, the array before the cast, so that the gradient is communicated in its element type
// - for another array computed from a parameter, the same array recomputed from the leaf with these reduced axes
// - otherwise `a`; also if its source is sharded over such an axis, because a type cannot be both sharded and reduced
//   over one axis
ArrayPtr start_of(ArrayImpl& a, const ArrayPtr& self, const Type* to, const Provenance& cause) {
  const AxisSet kept = to->reduced & ~(a.type->own() | a.type->reduced);
  if (is_tape_parameter(a)) return leaf(a, to->mesh, kept);
  if (!a.details || !a.details->again || !(kept || a.details->cast)) return self;
  const ArrayPtr& source = a.details->source;
  if (kept & source->type->own()) return self;
  const Type* source_type = with_reduced(on_mesh(source->type, to->mesh), source->type->reduced | kept);
  const bool starts_there = a.details->cast && source_type != with_dtype(to, source->type->dtype);
  if (starts_there && is_tape_parameter(*source)) return leaf(*source, to->mesh, kept);
  const ArrayPtr other = convert(*source, source, source_type, cause);
  if (starts_there) return other;
  return a.details->again(other);
}

// Returns the element type in which the gradient of `a` is communicated: for a copy of a parameter, the parameter's
// own.
DType gradient_dtype(const ArrayImpl& a) {
  const TapeState* tape = current_tape();
  return a.weight && tape && tape->options.reduce_dtype ? *tape->options.reduce_dtype : origin_of(a).type->dtype;
}

std::shared_ptr<const Resharding> resharding_of(const ArrayImpl& a, const ArrayImpl& start, const Type* to,
                                                const Provenance& cause) {
  const Type* from = start.type->dtype == to->dtype ? start.type : with_dtype(start.type, to->dtype);
  auto resharding = std::make_shared<Resharding>(Resharding{.from = start.type,
                                                            .to = to,
                                                            .steps = route(from, start.slots, to).steps,
                                                            .gradients = gradient_dtype(a),
                                                            .cause = cause});
  if (a.details && a.details->path) resharding->cause.path = a.details->path;
  if (!resharding->cause.path) resharding->cause.path = current_module_path();  // also for the backward pass
  return resharding;
}

void keep(ArrayImpl& a, Conversion made) {
  const std::lock_guard lock(first_uses());
  a.detail().conversions.push_back(std::move(made));
}

ArrayPtr convert_between_stages(ArrayImpl& a, const ArrayPtr& self, const Type* to, const Provenance& cause) {
  const bool recorded = wants_gradient(a);
  const Type* start_type = leaving_type(a, to, recorded);
  const Type* arrived = type_on(start_type, to->mesh);
  if (!to->mesh->parent) arrived = with_unreduced(arrived, cut_of(a.type->mesh));
  ArrayPtr moved;
  if (const ArrayPtr* known = cached_conversion(a, self, arrived, recorded)) {
    moved = *known;
  } else {
    moved = moved_between_stages(a, convert(a, self, start_type, cause), to->mesh, cause);
    if (recorded || !a.weight) keep(a, {arrived, recorded, moved});
  }
  return convert(*moved, moved, to, cause);
}

}  // namespace

std::vector<Array> on_one_stage(std::vector<Array> operands, const Provenance& cause) {
  std::vector<const ArrayImpl*> arrays;
  for (const Array& x : operands) arrays.push_back(&materialized(x, cause.operation));
  const MeshImpl* stage = stage_of(arrays.data(), static_cast<int>(arrays.size()));
  if (!stage) return operands;
  for (Array& x : operands)
    if (x.impl()->type->mesh) x = Array(convert(*x.impl(), x.impl(), type_on(x.impl()->type, stage), cause));
  return operands;
}

const ArrayPtr* cached_conversion(const ArrayImpl& a, const ArrayPtr& self, const Type* to, bool recorded) {
  const bool has_leaves = recorded && is_tape_parameter(a);
  if (a.type == to && !has_leaves) return &self;
  if (!a.details) return nullptr;
  if (has_leaves)
    for (const ArrayPtr& leaf : a.details->leaves)
      if (leaf->type == to) {
        leaf->direct = true;
        return &leaf;
      }
  const std::lock_guard lock(first_uses());
  for (const Conversion& known : a.details->conversions)
    if (known.to == to && known.recorded == recorded) return &known.array;
  return nullptr;
}

ArrayPtr convert(ArrayImpl& a, const ArrayPtr& self, const Type* to, const Provenance& cause) try {
  if (!a.is_ready()) materialized(Array(self), cause.operation);
  const bool recorded = wants_gradient(a);
  if (const ArrayPtr* known = cached_conversion(a, self, to, recorded)) return *known;
  if (are_stages(a.type->mesh, to->mesh)) return convert_between_stages(a, self, to, cause);
  const ArrayPtr start = recorded ? start_of(a, self, to, cause) : self;
  if (start->type == to) {
    start->direct = true;
    return start;
  }
  const auto resharding = resharding_of(a, *start, to, cause);
  const auto managed = conversion_policy() ? conversion_policy()->take(self, start, resharding) : nullptr;
  if (recorded && !(managed && managed->has_late_gradients())) start->direct = true;
  Tensors tensors = managed ? managed->forward(start->local) : resharding->forward(start->local);
  record_function(
      cause.operation, start->local, tensors,
      [resharding, managed](Tensors gradients) {
        return managed ? managed->backward(std::move(gradients)) : resharding->backward(std::move(gradients));
      },
      [resharding](const Tensors& gradients) { return resharding->forward(gradients, /*in_backward_pass=*/true); });
  add_gradients_in(tensors, resharding->gradients);
  // The graph may also keep a frozen weight, for the gradient of the activations.
  const bool may_be_kept = recorded || at::GradMode::is_enabled();
  const auto resharded =
      managed && may_be_kept ? managed->reshard_after_forward(start->local, tensors, recorded) : nullptr;
  ArrayPtr made = make_array(to, std::move(tensors));
  made->weight = a.weight;
  made->mesh_rules = a.mesh_rules;
  if (resharded) made->detail().reshard_after_forward = resharded;
  // A weight whose memory is freed is gathered for each use, so it is not cached. Nor is a weight outside a tape: else
  // inference with sharded weights would end up with the whole model on every device.
  if (!resharded && (recorded || !a.weight)) keep(a, {to, recorded, made});
  return made;
} catch (const std::exception& error) {
  check_allocation(error, cause.operation, cause.where,
                   fmt::format("to reshard {} to {}", a.type->to_string(), to->to_string()),
                   to->mesh ? to->mesh->device : c10::Device(c10::kCPU));
  throw;
}

// ---- the memory of gathered weights

namespace {

// Counts every reference to these tensors and their storages, including those that the graph saves.
size_t holders_of(const Tensors& tensors) {
  size_t holders = 0;
  for (const at::Tensor& t : tensors) holders += t.use_count() + t.storage().use_count();
  return holders;
}

c10::SmallVector<c10::Storage, 1> storages_of(const Tensors& tensors) {
  c10::SmallVector<c10::Storage, 1> storages;
  for (const at::Tensor& t : tensors) storages.push_back(t.storage());
  return storages;
}

}  // namespace

ReshardAfterForward::ReshardAfterForward(const Tensors& gathered, bool recorded, std::function<Tensors()> again)
    : again_(std::move(again)), memory_(storages_of(gathered)), holders_(holders_of(gathered)), recorded_(recorded) {}

void ReshardAfterForward::free_after_use(const Tensors& gathered, const Tensors& results) {
  if (!is_gathered_) return;
  for (const at::Tensor& result : results)
    for (const c10::Storage& memory : memory_)
      if (result.storage().unsafeGetStorageImpl() == memory.unsafeGetStorageImpl()) return memory_.clear();
  if (holders_of(gathered) > holders_) before_backward(results, [weight = shared_from_this()] { weight->regather(); });
  release();
}

void ReshardAfterForward::release() {
  for (const c10::Storage& memory : memory_)
    memory.unsafeGetStorageImpl()->set_data_ptr(c10::DataPtr(nullptr, memory.device()));
  is_gathered_ = false;
}

void ReshardAfterForward::regather() {
  if (is_gathered_) return;
  const Tensors again = again_();
  for (size_t i = 0; i < again.size(); ++i) {
    c10::DataPtr bytes = again[i].storage().unsafeGetStorageImpl()->set_data_ptr({});
    if (bytes) memory_[i].unsafeGetStorageImpl()->set_data_ptr(std::move(bytes));
  }
  is_gathered_ = true;
  if (!recorded_) memory_.clear();
}

}  // namespace tessera::detail
