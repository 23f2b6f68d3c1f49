// Conversions: an array in another form, found if it was made before, made and kept if not.
#include <fmt/format.h>

#include "sharding/autograd.h"
#include "sharding/redistribute.h"

namespace tessera {
namespace detail {
namespace {

// The leaf of a tape's parameter that is reduced over these axes.
ArrayPtr leaf(ArrayImpl& a, const MeshImpl* mesh, Mask reduced) {
  const Type* type = with_reduced(on_mesh(a.type, reduced ? mesh : a.type->mesh), a.type->reduced | reduced);
  for (const ArrayPtr& known : a.detail().leaves)
    if (known->type == type) return known;
  Tensors tensors;
  for (int i = 0; i < (type->mesh ? type->mesh->count(type->slots) : 1); ++i)
    tensors.push_back(make_leaf(a.local[project(type->mesh, type->slots, i, a.slots)]));
  ArrayPtr made = make_array(type, std::move(tensors));
  made->weight = true;
  made->layout = a.layout;
  a.detail().leaves.push_back(made);
  return made;
}

// Where a conversion that wants a gradient starts: a parameter, or what was made from one, takes the reduced axes
// into its leaf, so that they are reduced once, with all other gradients.
ArrayPtr start_of(ArrayImpl& a, const ArrayPtr& self, const Type* to) {
  const Mask kept = to->reduced & ~(a.type->own() | a.type->reduced);
  if (is_tape_parameter(a)) return leaf(a, to->mesh, kept);
  if (kept && a.details && a.details->again) {
    const ArrayPtr& source = a.details->source;
    const Type* source_type = with_reduced(on_mesh(source->type, to->mesh), source->type->reduced | kept);
    return a.details->again(convert(*source, source, source_type, {}));
  }
  return self;
}

}  // namespace

const ArrayPtr* known_form(const ArrayImpl& a, const ArrayPtr& self, const Type* to, bool recorded) {
  const bool has_leaves = recorded && is_tape_parameter(a);
  if (a.type == to && !has_leaves) return &self;
  if (!a.details) return nullptr;
  if (has_leaves)
    for (const ArrayPtr& leaf : a.details->leaves)
      if (leaf->type == to) return &leaf;
  for (const Conversion& known : a.details->conversions)
    if (known.to == to && known.recorded == recorded) return &known.array;
  return nullptr;
}

ArrayPtr convert(ArrayImpl& a, const ArrayPtr& self, const Type* to, const Cause& cause) {
  const bool recorded = wants_gradient(a);
  if (const ArrayPtr* known = known_form(a, self, to, recorded)) return *known;
  const ArrayPtr start = recorded ? start_of(a, self, to) : self;
  if (start->type == to) return start;
  Cause named = cause;
  if (a.details && a.details->path) named.path = a.details->path;
  Tensors tensors = start->local;
  for (const auto& step : route(start->type, start->slots, to).steps)
    tensors = run_step(step, tensors, named, start->type, to);
  ArrayPtr made = make_array(to, std::move(tensors));
  made->weight = a.weight;
  made->layout = a.layout;
  // A weight outside a tape keeps nothing: inference with sharded weights would end up with the whole model.
  if (recorded || !a.weight) a.detail().conversions.push_back({to, recorded, made});
  return made;
}

}  // namespace detail

Array redistribute(const Array& x, const NamedSharding& to, std::source_location where) {
  detail::ArrayImpl& a = detail::materialized(x, "redistribute");
  const detail::Type* type = detail::placed_type(a.type->dtype, a.type->shape, to, "redistribute");
  if (a.type->mesh && a.type->mesh != type->mesh)
    fail(ErrorKind::device_mismatch, "redistribute",
         fmt::format("{} lies on the mesh ({}), the target is the mesh ({}). Move it with device_put.", x.type_string(),
                     Mesh(a.type->mesh).to_string(), to.mesh().to_string()));
  return Array(
      detail::convert(a, x.impl(), type, {.operation = "redistribute", .where = where, .reason = detail::asked_for()}));
}

}  // namespace tessera
