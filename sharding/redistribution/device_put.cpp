// Places arrays: evaluates lazy initializers, splits host values, moves placed arrays.
#include "sharding/redistribution/device_put.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "sharding/array/abstract_tensor.h"
#include "sharding/array/autograd.h"
#include "sharding/array/out_of_memory.h"
#include "sharding/array/padding.h"
#include "sharding/array/recipe.h"
#include "sharding/base/fail.h"
#include "sharding/redistribution/communicate.h"
#include "sharding/redistribution/convert.h"
#include "sharding/redistribution/stages.h"
#include "sharding/redistribution/step.h"
#include "sharding/redistribution/varying.h"

namespace tessera {

using namespace detail;

namespace {

// Returns the local tensors of `type`; calls `make(block)` once per distinct block.
template <class Make>
Tensors make_blocks(const Type* type, Make make) {
  const MeshImpl* mesh = type->mesh;
  if (mesh->abstract) return {abstract_block(type)};
  Tensors distinct;
  for (int b = 0; b < mesh->slots(type->own()); ++b) {
    Coordinates coordinates(mesh);
    unravel(mesh, type->own(), b, coordinates);
    distinct.push_back(in_memory_of(mesh, with_padding(make(block_of(type, coordinates)), type->local)));
  }
  if (!mesh->private_replicas) return distinct;
  Tensors all;
  for (int s = 0; s < mesh->slots(type->slots); ++s)
    all.push_back(distinct[project(mesh, type->slots, s, type->own())].clone());
  return all;
}

void check_same_devices(const Type* from, const Type* to, const char* verb) {
  std::vector<int> a = from->mesh->devices, b = to->mesh->devices;
  std::sort(a.begin(), a.end()), std::sort(b.begin(), b.end());
  if (a != b || from->mesh->device != to->mesh->device)
    fail(ErrorKind::device_mismatch, verb,
         "{} is on the mesh ({}), the target is the mesh ({}) over other devices. Both must have the same.",
         from->to_string(), Mesh(from->mesh).to_string(), Mesh(to->mesh).to_string());
}

Tensors with_own_memory(Tensors blocks, const Type* to) {
  bring_to_memory_of(to->mesh, blocks);
  for (at::Tensor& t : blocks) t = to->mesh->private_replicas ? t.detach().clone() : t.detach().contiguous();
  return blocks;
}

// Moves an array to another mesh: every device gets its block from the devices that hold it.
ArrayPtr exchange_blocks(const ArrayPtr& a, const Type* to, const Provenance& cause) {
  const Type* from = at_rest(a->type);
  if (from->varying)
    fail(ErrorKind::varying_axis, cause.operation,
         "{} has a different value on each device and cannot go to the mesh ({}). Return it from shard_map, or use "
         "psum or all_gather.",
         from->to_string(), Mesh(to->mesh).to_string());
  const ArrayPtr source = convert(*a, a, from, cause);
  const auto step = std::make_shared<const Step>(step_between_meshes(from, to));
  const auto go = [=](const Tensors& x, bool in_backward_pass) {
    at::AutoGradMode off(false);
    return with_own_memory(communicate(in_direction(*step, Direction::forward), x, {cause, from, to, in_backward_pass}),
                           to);
  };
  Tensors local = go(source->local, false);
  record_function(
      cause.operation, source->local, local,
      [=](const Tensors& gradients) {
        Tensors apart = communicate(in_direction(*step, Direction::backward), gradients, {cause, to, from, true});
        bring_to_memory_of(from->mesh, apart);
        return apart;
      },
      [=](const Tensors& gradients) { return go(gradients, true); });
  ArrayPtr result = make_array(to, std::move(local));
  result->mesh_rules = a->mesh_rules;
  result->weight = a->weight;
  return result;
}

// Places an unplaced array: every device generates its block of a lazy initializer, or copies it from the host's value.
ArrayPtr first_placement(const Array& x, const Type* to) {
  if (x.is_lazy())
    return make_array(to, make_blocks(to, [&, recipe = x.impl()->details->recipe](const IndexRanges& b) {
                        return generate(*recipe, to->dtype, to->shape, b, to->mesh->device);
                      }));
  const at::Tensor whole = x.impl()->local[0];
  return make_array(to, make_blocks(to, [&](const IndexRanges& b) {
                      return to->own() ? cut(whole, b).clone(at::MemoryFormat::Contiguous) : whole;
                    }));
}

ArrayPtr place(const Array& x, const Type* to, const Provenance& cause) try {
  ArrayImpl& a = *x.impl();
  const bool recorded = !x.is_lazy() && wants_gradient(a);
  if (a.type->mesh == to->mesh || are_stages(a.type->mesh, to->mesh) || (!a.type->mesh && recorded))
    return convert(a, x.impl(), to, cause);
  const Type* value = at_rest(to);  // a partial sum is made from the complete value
  const ArrayPtr placed = a.type->mesh ? exchange_blocks(x.impl(), value, cause) : first_placement(x, value);
  return convert(*placed, placed, to, cause);
} catch (const std::exception& error) {
  check_allocation(error, cause.operation, cause.where, fmt::format("to place {}", to->to_string()), to->mesh->device);
  throw;
}

// The devices to which a verb may move an array.
enum class Reach { own_mesh, own_devices, any_device };

void check_reach(const Type* from, const Type* to, Reach reach, const char* verb) {
  if (!from->mesh || from->mesh == to->mesh || are_stages(from->mesh, to->mesh)) return;
  if (from->mesh->has_no_hardware() != to->mesh->has_no_hardware())
    fail(ErrorKind::device_mismatch, verb,
         "{} is on the {}mesh ({}), the target is the {}mesh ({}). Arrays cannot move between devices and an abstract "
         "mesh.",
         from->to_string(), from->mesh->has_no_hardware() ? "abstract " : "", Mesh(from->mesh).to_string(),
         to->mesh->has_no_hardware() ? "abstract " : "", Mesh(to->mesh).to_string());
  if (from->mesh->members() != to->mesh->members())
    fail(ErrorKind::device_mismatch, verb,
         "{} is on the mesh ({}) of {}, the target is the mesh ({}) of {}. Read the value (after gather, if other "
         "processes have shards of it), and place that.",
         from->to_string(), Mesh(from->mesh).to_string(), from->mesh->words_of_members(), Mesh(to->mesh).to_string(),
         to->mesh->words_of_members());
  if (reach == Reach::any_device) return;
  if (reach == Reach::own_devices) return check_same_devices(from, to, verb);
  fail(ErrorKind::device_mismatch, verb,
       "{} is on the mesh ({}), the target is the mesh ({}). Move it with device_put.", from->to_string(),
       Mesh(from->mesh).to_string(), Mesh(to->mesh).to_string());
}

Array put(const Array& x, const NamedSharding& sharding, Reach reach, const char* verb, std::source_location where) {
  check_present(x, verb);
  const CallerScope caller(where);
  const Type* to = placed_inside(placed_type(x.dtype(), x.shape(), sharding, verb), x.impl()->type, verb);
  check_reach(x.impl()->type, to, reach, verb);
  const Array placed(place(x, to, {.operation = verb, .where = where, .reason = explicit_reason(), .path = {}}));
  emit(Events::operations, &Observer::moved, *x.impl(), placed);
  return placed;
}

// Fills unconstrained dimensions with their mesh axes in x, except for axes that the spec uses elsewhere.
NamedSharding filled(const Array& x, const NamedSharding& sharding) {
  const PartitionSpec& spec = sharding.spelled_spec();
  if (std::ranges::none_of(spec.entries(), &SpecEntry::is_unconstrained)) return sharding;
  std::vector<SpecEntry> entries = spec.entries();
  std::set<std::string> taken;
  for (const SpecEntry& entry : entries) taken.insert(entry.axes().begin(), entry.axes().end());
  const Type& type = *x.impl()->type;
  for (size_t d = 0; d < entries.size(); ++d) {
    if (!entries[d].is_unconstrained()) continue;
    std::vector<std::string> axes;
    if (type.mesh == sharding.mesh().impl() && d < type.dims.size())
      for (int a : type.dims[d])
        if (!taken.contains(type.mesh->axes[a].name)) axes.push_back(type.mesh->axes[a].name);
    entries[d] = SpecEntry(axes, d < type.dims.size() && type.is_padded(d) ? Uneven::pad : Uneven::error);
  }
  return NamedSharding(sharding.mesh(),
                       PartitionSpec(entries).unreduced(spec.unreduced_axes()).reduced(spec.reduced_axes()));
}

void check_placed(const Array& x, const PartitionSpec& spec, const char* verb) {
  if (!materialized(x, verb).type->mesh)
    fail(ErrorKind::device_mismatch, verb, "{} is not placed on a mesh, so {} has no meaning. Give a NamedSharding.",
         x.type_string(), spec.to_string());
}

// Returns a second handle, so that details of the placement are not attached to x itself.
ArrayPtr same_value(const Array& x) {
  ArrayPtr copy = make_array(x.impl()->type, x.impl()->slots, materialized(x, "device_put").local);
  copy->weight = x.impl()->weight;
  copy->mesh_rules = x.impl()->mesh_rules;
  return copy;
}

}  // namespace

Array device_put(const Array& x, const NamedSharding& sharding, std::source_location where) {
  const Array moved = put(x, sharding, Reach::any_device, "device_put", where);
  ArrayPtr placed = same_value(moved);
  placed->detail().placed = std::make_unique<NamedSharding>(sharding);
  return Array(std::move(placed));
}

Array device_put(const Array& x, int device, std::source_location where) {
  if (!x.is_committed()) return device_put(x, SingleDeviceSharding{device}, where);
  const Mesh alone = make_mesh({}, {.devices = {device}, .device = x.sharding().mesh().device()});
  return device_put(x, NamedSharding(alone, {}), where);
}

Array device_put(const Array& x, const Axes& axes, const MeshRules& mesh_rules, std::source_location where) {
  check_present(x, "device_put");
  const RuleResolution resolution = mesh_rules.activations().resolve(axes, x.shape(), "device_put");
  Array placed = device_put(x, NamedSharding(mesh_rules.mesh(), resolution.spec), where);
  placed.impl()->mesh_rules = mesh_rules.impl();
  return placed;
}

Array place_parameter(const Array& x, const NamedSharding& sharding, const std::string& path) {
  const PartitionSpec& spec = sharding.spec();
  if (!spec.unreduced_axes().empty() || !spec.reduced_axes().empty())
    fail(ErrorKind::invalid_argument, "place_parameter",
         "{} given: a parameter is sharded or replicated; unreduced and reduced axes exist only inside a computation. "
         "Leave them out.",
         spec.to_string());
  Array placed = device_put(x, sharding);
  placed.impl()->weight = is_floating(x.dtype());  // an integer array is data, not a weight
  placed.impl()->details->path = as_text(path);
  return placed;
}

Array place_parameter(const Array& x, const MeshRules& mesh_rules, const PartitionSpec& spec, const std::string& path) {
  Array placed = place_parameter(x, NamedSharding(mesh_rules.mesh(), spec), path);
  placed.impl()->mesh_rules = mesh_rules.impl();
  return placed;
}

Array place_parameter_as(const Array& x, const Array& old) {
  if (!old.is_committed()) return x;
  Array placed = place_parameter(x, old.sharding(), old.path());
  placed.impl()->mesh_rules = old.impl()->mesh_rules;
  return placed;
}

std::optional<MeshRules> mesh_rules_of(const Array& x) {
  if (x.is_absent() || !x.impl()->mesh_rules) return std::nullopt;
  return MeshRules(x.impl()->mesh_rules);
}

Array place_batch(const Array& x, const MeshRules& mesh_rules, const PartitionSpec& spec) {
  Array placed = device_put(x, NamedSharding(mesh_rules.mesh(), spec));
  placed.impl()->mesh_rules = mesh_rules.impl();
  return placed;
}

Array with_sharding_constraint(const Array& x, const NamedSharding& sharding, std::source_location where) {
  constexpr const char* verb = "with_sharding_constraint";
  check_present(x, verb);
  return put(x, filled(x, sharding), Reach::own_devices, verb, where);
}

Array constrain_to_spec(const Array& x, const PartitionSpec& spec, std::source_location where) {
  check_placed(x, spec, "with_sharding_constraint");
  return with_sharding_constraint(x, NamedSharding(Mesh(x.impl()->type->mesh), spec), where);
}

Array reshard(const Array& x, const NamedSharding& sharding, std::source_location where) {
  return put(x, sharding, Reach::own_mesh, "reshard", where);
}

Array reshard_to_spec(const Array& x, const PartitionSpec& spec, std::source_location where) {
  check_placed(x, spec, "reshard");
  return reshard(x, NamedSharding(Mesh(x.impl()->type->mesh), spec), where);
}

Array gather(const Array& x, std::source_location where) {
  if (!materialized(x, "gather").type->mesh) return x;
  return put(x, NamedSharding(Mesh(whole_of(x.impl()->type->mesh)), PartitionSpec{}), Reach::own_mesh, "gather", where);
}

Array reduce_partial_sum(const Array& x, std::source_location where) {
  const Type* type = materialized(x, "reduce_partial_sum").type;
  if (!type->unreduced) return x;
  const Array finished(
      place(x, with_unreduced(type, 0),
            {.operation = "reduce_partial_sum", .where = where, .reason = explicit_reason(), .path = {}}));
  emit(Events::operations, &Observer::moved, *x.impl(), finished);
  return finished;
}

Array with_sharding_constraint(const Array& x, const Axes& axes, std::source_location where) {
  const ArrayImpl& a = materialized(x, "with_sharding_constraint");
  if (!a.mesh_rules) return x;
  const MeshRules mesh_rules(a.type->mesh ? mesh_rules_on(a.mesh_rules, a.type->mesh) : a.mesh_rules);
  const RuleResolution resolution = mesh_rules.activations().resolve(axes, x.shape(), "with_sharding_constraint");
  return with_sharding_constraint(x, NamedSharding(mesh_rules.mesh(), resolution.spec), where);
}

}  // namespace tessera
