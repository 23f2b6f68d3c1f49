// Reinterprets tensors under other types, and handles their gradients.
#include "sharding/redistribution/varying.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full_like.h>

#include <utility>

#include "sharding/array/autograd.h"
#include "sharding/base/fail.h"
#include "sharding/kernels/tensors.h"
#include "sharding/redistribution/convert.h"

namespace tessera::detail {
ArrayPtr read_as(const ArrayPtr& a, const Type* to) {
  const ArrayPtr from = convert(*a, a, a->type, {});  // for a tape's parameter, the leaf
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

// Sums tensors along these axes between processes; each process has already summed over its own devices.
Tensors sum_along(AxisSet axes, const Tensors& tensors, const EventContext& context) {
  const MeshImpl* mesh = context.to->mesh;
  const int64_t bytes = axes & mesh->crossing() ? static_cast<int64_t>(tensors[0].nbytes()) : 0;
  return communicate([&] { return event_of(Collective::all_reduce, mesh, axes, bytes, context); },
                     [&] { return sum_over_processes(mesh, axes, tensors, {.operation = "shard_map", .where = {}}); });
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

namespace {

Step step_over(Row row, const Type* from, const Type* to, const DimAxes& axes) {
  Step step{.row = row, .mesh = from->mesh, .axes = axes.axis_set()};
  step.slots_in = from->slots;
  step.slots_out = to->slots;
  step.tensors_in = from->mesh->slots(from->slots);
  step.tensors_out = from->mesh->slots(to->slots);
  form_groups(step, axes);
  return step;
}

}  // namespace

Resharding resharding_over(Row row, const Type* from, const Type* to, const DimAxes& axes, int dim, int to_dim,
                           const Provenance& cause) {
  Step step = step_over(row, from, to, axes);
  step.dim = dim;
  step.to_dim = to_dim;
  return {from, to, {std::make_shared<const Step>(std::move(step))}, from->dtype, cause};
}

Resharding permutation(const Type* type, const DimAxes& axes, std::vector<int> senders, const Provenance& cause) {
  Step step = step_over(Row::varying_to_varying, type, type, axes);
  step.receivers.assign(senders.size(), -1);
  for (size_t i = 0; i < senders.size(); ++i)
    if (senders[i] >= 0) step.receivers[senders[i]] = static_cast<int>(i);
  step.senders = std::move(senders);
  return {type, type, {std::make_shared<const Step>(std::move(step))}, type->dtype, cause};
}

Tensors reduce_over(const Type* from, const Type* to, const DimAxes& axes, const Tensors& x, Collective collective,
                    const Provenance& cause) {
  at::AutoGradMode off(false);
  return communicate({step_over(Row::unreduced_to_replicated, from, to, axes), collective}, x, {cause, from, to});
}

}  // namespace tessera::detail
