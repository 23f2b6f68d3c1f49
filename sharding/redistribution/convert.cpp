// Looks an array up in another placement, or routes, transfers and records its conversion.
#include "sharding/redistribution/convert.h"

#include <ATen/core/grad_mode.h>

#include <functional>
#include <optional>

#include "sharding/array/autograd.h"
#include "sharding/array/tape_state.h"
#include "sharding/base/caller.h"
#include "sharding/redistribution/conversion_policy.h"
#include "sharding/redistribution/resharding.h"
#include "sharding/redistribution/route.h"
#include "sharding/redistribution/stages.h"

namespace tessera::detail {
namespace {

// The leaf of a tape's parameter that is reduced over these axes.
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

// Where a conversion that wants a gradient starts: a parameter, or what was made from one, takes the reduced axes
// into its leaf, so that they are reduced once, with all other gradients. A cast of a parameter starts before the cast,
// so that its gradient crosses the devices in the parameter's own element type. A view that gathered its source starts
// where it is: nothing is sharded and reduced over one axis.
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

// The element type in which the gradient of `a` crosses the devices: of a copy of a parameter, the parameter's own.
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
  if (!resharding->cause.path) resharding->cause.path = current_module_path();  // in the backward pass, too
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
  ArrayPtr there;
  if (const ArrayPtr* known = known_form(a, self, arrived, recorded)) {
    there = *known;
  } else {
    there = moved_between_stages(a, convert(a, self, start_type, cause), to->mesh, cause);
    if (recorded || !a.weight) keep(a, {arrived, recorded, there});
  }
  return convert(*there, there, to, cause);
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

const ArrayPtr* known_form(const ArrayImpl& a, const ArrayPtr& self, const Type* to, bool recorded) {
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

ArrayPtr convert(ArrayImpl& a, const ArrayPtr& self, const Type* to, const Provenance& cause) {
  if (!a.is_ready()) materialized(Array(self), cause.operation);
  const bool recorded = wants_gradient(a);
  if (const ArrayPtr* known = known_form(a, self, to, recorded)) return *known;
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
  // The graph may keep a frozen weight, too, for the gradient of the activations.
  const bool may_be_kept = recorded || at::GradMode::is_enabled();
  const auto borrowed = managed && may_be_kept ? managed->borrow(start->local, tensors, recorded) : nullptr;
  ArrayPtr made = make_array(to, std::move(tensors));
  made->weight = a.weight;
  made->mesh_rules = a.mesh_rules;
  if (borrowed) made->detail().borrowed = borrowed;
  // A weight whose memory is freed is gathered for each use. A weight outside a tape keeps no other form, or inference
  // with sharded weights would end up with the whole model.
  if (!borrowed && (recorded || !a.weight)) keep(a, {to, recorded, made});
  return made;
}

}  // namespace tessera::detail
