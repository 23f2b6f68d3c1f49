// Splits arguments into varying blocks, and assembles results from them.
#include "sharding/shard_map/shard_map.h"

#include <fmt/format.h>

#include "sharding/base/fail.h"
#include "sharding/base/thread_state.h"
#include "sharding/redistribution/convert.h"
#include "sharding/redistribution/device_put.h"
#include "sharding/redistribution/varying.h"

namespace tessera::detail {
namespace {

// A spec as sets of axes, without axes of size one.
struct ReadSpec {
  std::vector<DimAxes> dims;
  AxisSet sharded = 0, unreduced = 0;
};

class SpecReader {
 public:
  SpecReader(Mesh mesh, AxisSet manual, std::string what) : mesh_(mesh), manual_(manual), what_(std::move(what)) {}

  ReadSpec read(const PartitionSpec& spec, size_t ndim) {
    if (spec.entries().size() > ndim)
      fail(ErrorKind::rank_mismatch, "shard_map", "{}: {} names {} dims, the array has {}. Use a shorter spec.", what_,
           spec.to_string(), spec.entries().size(), ndim);
    if (!spec.reduced_axes().empty())
      fail(ErrorKind::invalid_argument, "shard_map", "{}: {} given; arrays become reduced by use alone. Leave it out.",
           what_, spec.to_string());
    ReadSpec result;
    for (const SpecEntry& entry : spec.entries()) {
      if (entry.is_unconstrained())
        fail(ErrorKind::invalid_argument, "shard_map", "{}: unconstrained in {}, expected mesh axes or none.", what_,
             spec.to_string());
      result.dims.emplace_back();
      for (const std::string& name : entry.axes())
        if (const int axis = axis_of(name, spec); mesh_.impl()->axes[axis].size > 1) result.dims.back().push_back(axis);
    }
    result.dims.resize(ndim);
    result.sharded = axis_set_of(result.dims);
    for (const std::string& name : spec.unreduced_axes())
      if (const int axis = axis_of(name, spec); mesh_.impl()->axes[axis].size > 1)
        result.unreduced |= AxisSet{1} << axis;
    return result;
  }

 private:
  int axis_of(const std::string& name, const PartitionSpec& spec) {
    const int axis = mesh_.impl()->find(name);
    if (axis < 0)
      fail(ErrorKind::unknown_axis, "shard_map",
           "{}: mesh axis \"{}\" of {} is not in the mesh ({}). Use one of its axes.", what_, name, spec.to_string(),
           mesh_.to_string());
    if (!((manual_ | ~manual_axes().axes) >> axis & 1))
      fail(ErrorKind::unknown_axis, "shard_map",
           "{}: mesh axis \"{}\" of {} is manual already, by the shard_map around this one. Leave it out.", what_, name,
           spec.to_string());
    if (!(manual_ >> axis & 1))
      fail(ErrorKind::unknown_axis, "shard_map",
           "{}: mesh axis \"{}\" of {} is not manual here, only \"{}\". Name it in axis_names.", what_, name,
           spec.to_string(), mesh_.impl()->names(manual_));
    if (seen_ >> axis & 1)
      fail(ErrorKind::duplicate_axis, "shard_map", "{}: mesh axis \"{}\" appears twice in {}.", what_, name,
           spec.to_string());
    seen_ |= AxisSet{1} << axis;
    return axis;
  }

  Mesh mesh_;
  AxisSet manual_, seen_ = 0;
  std::string what_;
};

// Returns the dimension's manual axes, followed by other axes that already shard it and still divide it.
DimAxes cut_first_by(const DimAxes& manual, const DimAxes& now, AxisSet all_manual, const MeshImpl* mesh,
                     int64_t size) {
  DimAxes axes = manual;
  int64_t left = size / mesh->count(manual.axis_set());
  for (int a : now) {
    if (all_manual >> a & 1) continue;
    if (left % mesh->axes[a].size) break;
    left /= mesh->axes[a].size;
    axes.push_back(a);
  }
  return axes;
}

// Returns the axes after the first n.
DimAxes minor_axes(const DimAxes& axes, int n) {
  DimAxes rest;
  for (int i = n; i < axes.size(); ++i) rest.push_back(axes[i]);
  return rest;
}

DimAxes joined(DimAxes major, const DimAxes& minor) {
  for (int a : minor) major.push_back(a);
  return major;
}

void check_divides(const Type* type, const PartitionSpec& spec, const ReadSpec& read, const MeshImpl* mesh, size_t i) {
  for (size_t d = 0; d < read.dims.size(); ++d)
    if (const int n = mesh->count(read.dims[d].axis_set()); type->shape[d] % n)
      fail(ErrorKind::not_divisible, "shard_map",
           "argument {}, {}: dim {} = {} is not divisible by {}, the devices along \"{}\" of {}.", i, type->to_string(),
           d, type->shape[d], n, mesh->names(read.dims[d].axis_set()), spec.to_string());
}

const PartitionSpec& spec_of(const Specs& specs, size_t i, size_t n, const char* name, const char* of) {
  const PartitionSpec* spec = specs.of(i, n);
  if (!spec)
    fail(ErrorKind::invalid_argument, "shard_map", "{} {} for {} {}. Give one for each, or one for all.", specs.size(),
         name, n, of);
  return *spec;
}

}  // namespace

ShardMapCall::ShardMapCall(Mesh mesh, Specs in_specs, Specs out_specs, ShardMapOptions options,
                           std::source_location where)
    : mesh_(mesh), in_(std::move(in_specs)), out_(std::move(out_specs)), options_(std::move(options)), where_(where) {
  if (mesh.empty()) fail(ErrorKind::invalid_argument, "shard_map", "no mesh given. Make one with make_mesh.");
}

AxisSet ShardMapCall::manual() const {
  const ManualAxes& outer = manual_axes();
  if (outer.mesh && outer.mesh != mesh_.impl())
    fail(ErrorKind::device_mismatch, "shard_map", "over the mesh ({}) inside one over ({}). Use the same mesh.",
         mesh_.to_string(), Mesh(outer.mesh).to_string());
  if (options_.axis_names.empty()) return mesh_.impl()->all() & ~outer.axes;
  AxisSet axes = 0;
  for (const std::string& name : options_.axis_names) {
    const int axis = mesh_.impl()->find(name);
    if (axis < 0 || outer.axes >> axis & 1)
      fail(ErrorKind::unknown_axis, "shard_map", "axis_names: \"{}\" {} ({}).", name,
           axis < 0 ? "is not in the mesh" : "is manual already in", mesh_.to_string());
    if (axes >> axis & 1)
      fail(ErrorKind::duplicate_axis, "shard_map", "axis_names: \"{}\" given twice, expected each axis once.", name);
    axes |= AxisSet{1} << axis;
  }
  return axes;
}

namespace {

// Returns the type of an argument that is sharded by its manual axes first, from which each device's block is read.
TypeKey argument_key(const Type* type, const ReadSpec& read, AxisSet manual, const MeshImpl* mesh) {
  TypeKey key = *type;
  if (key.mesh != mesh) key = {.dtype = key.dtype, .shape = key.shape, .mesh = mesh};
  key.dims.resize(key.shape.size());
  for (size_t d = 0; d < key.dims.size(); ++d)
    key.dims[d] = cut_first_by(read.dims[d], key.dims[d], manual, mesh, key.shape[d]);
  key.unreduced &= ~(manual | axis_set_of(key.dims));
  key.reduced &= ~(manual | axis_set_of(key.dims));
  return key;
}

ArrayPtr placed(const Array& x, const Type* to, const std::source_location& where) {
  const ArrayImpl& a = *x.impl();
  const bool recorded = !x.is_lazy() && wants_gradient(a);
  if (a.type->mesh != to->mesh && (a.type->mesh || !recorded)) return device_put(x, sharding_of(to), where).impl();
  return convert(*x.impl(), x.impl(), to, {.operation = "shard_map", .where = where, .reason = explicit_reason()});
}

}  // namespace

Array ShardMapCall::enter_one(const Array& x, const PartitionSpec& spec, size_t i) const {
  if (x.is_absent())
    fail(ErrorKind::missing_array, "shard_map",
         "argument {} is absent: it was never set, was moved away, or a filter took it out of its tree.", i);
  const AxisSet axes = manual();
  const Type* type = x.impl()->type;
  const std::string what = fmt::format("argument {}, {}", i, type->to_string());
  if (type->mesh && type->mesh != mesh_.impl())
    fail(ErrorKind::device_mismatch, "shard_map",
         "{} is on the mesh ({}), shard_map runs over ({}). Move it with device_put.", what,
         Mesh(type->mesh).to_string(), mesh_.to_string());
  const ReadSpec read = SpecReader(mesh_, axes, what).read(spec, type->shape.size());
  if (read.unreduced)
    fail(ErrorKind::invalid_argument, "shard_map",
         "{}: {} is for results. A partial sum is reduced before it is passed in.", what, spec.to_string());
  check_divides(type, spec, read, mesh_.impl(), i);
  TypeKey key = argument_key(type, read, axes, mesh_.impl());
  const ArrayPtr blocks = placed(x, intern(key), where_);
  if (!read.sharded) return Array(blocks);
  for (size_t d = 0; d < key.dims.size(); ++d) {
    key.shape[d] /= mesh_.impl()->count(read.dims[d].axis_set());
    key.dims[d] = minor_axes(key.dims[d], read.dims[d].size());
  }
  key.varying |= read.sharded;
  return Array(read_as(blocks, intern(std::move(key))));
}

std::vector<Array> ShardMapCall::enter(const std::vector<Array>& arguments) const {
  std::vector<Array> inside;
  for (size_t i = 0; i < arguments.size(); ++i)
    inside.push_back(enter_one(arguments[i], spec_of(in_, i, arguments.size(), "in_specs", "arguments"), i));
  return inside;
}

Array ShardMapCall::leave_one(const Array& x, const PartitionSpec& spec, size_t i, AxisSet axes) const {
  ArrayPtr a = detail::inside(x, "shard_map");
  const std::string what = fmt::format("result {}, {}", i, a->type->to_string());
  const ReadSpec read = SpecReader(mesh_, axes, what).read(spec, a->type->shape.size());
  const Provenance cause{.operation = "shard_map", .where = where_, .reason = explicit_reason(), .path = {}};
  const AxisSet apart = read.sharded | read.unreduced;
  if (const AxisSet claimed = a->type->varying & axes & ~apart) {
    if (options_.check_vma)
      fail(ErrorKind::varying_axis, "shard_map",
           "{}: {} claims that it is equal along \"{}\", where it varies. Name the axis in the spec, or use psum, pmax "
           "or an invarying all_gather; check_vma = false takes the first device's.",
           what, spec.to_string(), mesh_.impl()->names(claimed));
    a = first_of(a, claimed, cause);
  }
  a = varied(a, apart, cause);
  TypeKey key = *with_reduced(a->type, a->type->reduced & ~axes);
  for (size_t d = 0; d < key.dims.size(); ++d)  // padded blocks would not be contiguous in the assembled array
    if (!read.dims[d].empty() && a->type->is_padded(d)) key.dims[d] = {};
  a = convert(*a, a, intern(key), cause);
  if (!apart) return Array(a);
  for (size_t d = 0; d < key.dims.size(); ++d) {
    key.shape[d] *= mesh_.impl()->count(read.dims[d].axis_set());
    key.dims[d] = joined(read.dims[d], key.dims[d]);
  }
  key.varying &= ~apart;
  key.unreduced |= read.unreduced;
  return Array(read_as(a, intern(std::move(key))));
}

void ShardMapCall::leave(const std::vector<Array*>& results, const Inside& inside) const {
  for (size_t i = 0; i < results.size(); ++i)
    *results[i] = leave_one(*results[i], spec_of(out_, i, results.size(), "out_specs", "results"), i, inside.axes());
}

ShardMapCall::Inside::Inside(const ShardMapCall& call)
    : axes_(call.manual()),
      scope_(std::make_unique<ScopedValue<ManualAxes>>(manual_axes(),
                                                       ManualAxes{call.mesh_.impl(), manual_axes().axes | axes_})) {}
ShardMapCall::Inside::~Inside() = default;

}  // namespace tessera::detail
