// Types read anew over the same tensors, and what becomes of their gradients.
#include "sharding/redistribution/varying.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full_like.h>

#include <utility>

#include "sharding/array/autograd.h"
#include "sharding/base/fail.h"
#include "sharding/kernels/sum.h"
#include "sharding/redistribution/communicate.h"
#include "sharding/redistribution/convert.h"

namespace tessera::detail {
ArrayPtr read_as(const ArrayPtr& a, const Type* to) {
  const ArrayPtr from = convert(*a, a, a->type, {});  // of a tape's parameter, the leaf
  Tensors local;
  for (int i = 0; i < to->mesh->slots(to->slots); ++i)
    local.push_back(from->local[project(to->mesh, to->slots, i, from->slots)]);
  ArrayPtr made = make_array(to, std::move(local));
  made->weight = a->weight;
  made->mesh_rules = a->mesh_rules;
  if (a->details && a->details->path) made->detail().path = a->details->path;
  return made;
}

ArrayPtr varied(const ArrayPtr& a, AxisSet axes, const Provenance& cause) {
  const AxisSet missing = axes & ~a->type->varying;
  if (!missing) return a;
  const ArrayPtr reduced = convert(*a, a, with_reduced(a->type, a->type->reduced | missing), cause);
  TypeKey key = *reduced->type;
  key.reduced &= ~missing;
  key.varying |= missing;
  return read_as(reduced, intern(std::move(key)));
}

namespace {

// Each device's tensor along these axes becomes their sum; a process has added up its own already, which moves nothing.
Tensors sum_along(AxisSet axes, const Tensors& tensors, const EventContext& context) {
  const auto said = [&] {
    const bool moves = axes & context.to->mesh->crossing();
    return Communication{.bytes = moves ? static_cast<int64_t>(tensors[0].nbytes()) : 0,
                         .cause = context.cause,
                         .from = context.from,
                         .to = context.to,
                         .backward = context.in_backward_pass};
  };
  return communicate({.operation = "shard_map", .mesh = context.to->mesh, .axes = axes, .over = axes, .said = said},
                     tensors);
}

}  // namespace

ArrayPtr first_of(const ArrayPtr& a, AxisSet axes, const Provenance& cause) {
  TypeKey key = *a->type;
  key.varying &= ~axes;
  const Type *from = a->type, *to = intern(std::move(key));
  Tensors local;
  for (int i = 0; i < to->mesh->slots(to->slots); ++i) {
    Coordinates coordinates(to->mesh);
    unravel(to->mesh, to->slots & ~axes, project(to->mesh, to->slots, i, to->slots & ~axes), coordinates);
    local.push_back(a->local[ravel(to->mesh, from->slots, coordinates)]);
  }
  {
    at::AutoGradMode off(false);
    if (process_along(to->mesh, axes, Coordinates(to->mesh)) != 0)
      for (at::Tensor& t : local) t = at::full_like(t, no_term);
    local = sum_along(axes, local, {.cause = cause, .from = from, .to = to});
  }
  const int n = to->mesh->count(axes);
  const auto share = [from, to, n](const Tensors& gradients) {
    Tensors shares;
    for (int i = 0; i < from->mesh->slots(from->slots); ++i)
      shares.push_back(gradients[project(from->mesh, from->slots, i, to->slots)] / n);
    return shares;
  };
  const auto sum_tensors = [from, to, n, axes, cause, apart = from->slots & ~axes](const Tensors& shares) {
    Tensors sums(to->mesh->slots(apart)), each;
    for (size_t i = 0; i < shares.size(); ++i) {
      at::Tensor& sum = sums[project(from->mesh, from->slots, static_cast<int>(i), apart)];
      sum = sum.defined() ? sum + shares[i] / n : shares[i] / n;
    }
    sums = sum_along(axes, sums, {.cause = cause, .from = from, .to = to, .in_backward_pass = true});
    for (int i = 0; i < to->mesh->slots(to->slots); ++i) each.push_back(sums[project(to->mesh, to->slots, i, apart)]);
    return each;
  };
  record_function("shard_map", a->local, local, share, sum_tensors);
  ArrayPtr made = make_array(to, std::move(local));
  made->mesh_rules = a->mesh_rules;
  return made;
}

const Type* placed_inside(const Type* to, const Type* from, const char* verb) {
  const ManualAxes& manual = manual_axes();
  if (!manual.mesh || to->mesh != manual.mesh) return to;
  if (const AxisSet named = (to->sharded | to->unreduced | to->reduced) & manual.axes)
    fail(ErrorKind::varying_axis, verb,
         "{} as {}: \"{}\" is manual inside shard_map. Use a collective, or place it outside.", from->to_string(),
         to->to_string(), manual.mesh->names(named));
  TypeKey key = *to;
  key.varying = from->varying;
  return intern(std::move(key));
}

ArrayPtr inside(const Array& x, const char* verb) {
  const ArrayImpl& a = materialized(x, verb);
  const ManualAxes& manual = manual_axes();
  if (a.type->mesh && a.type->mesh != manual.mesh)
    fail(ErrorKind::device_mismatch, verb,
         "{} is on the mesh ({}), shard_map runs over ({}). Pass it through in_specs.", x.type_string(),
         Mesh(a.type->mesh).to_string(), Mesh(manual.mesh).to_string());
  if (const AxisSet apart = (a.type->sharded | a.type->unreduced) & manual.axes)
    fail(ErrorKind::varying_axis, verb,
         "{} is not replicated over \"{}\", but was not passed to shard_map. Pass it through in_specs.",
         x.type_string(), manual.mesh->names(apart));
  if (a.type->mesh) return x.impl();
  return convert(*x.impl(), x.impl(), on_mesh(a.type, manual.mesh), {.operation = verb});
}

}  // namespace tessera::detail
