// Interned shardings, their blocks, and the types that they give to arrays.
#include "sharding/placement/named_sharding.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "sharding/base/fail.h"
#include "sharding/placement/type.h"

namespace tessera {

namespace detail {

struct ShardingImpl {
  Mesh mesh;
  PartitionSpec spec;
  std::vector<DimAxes> dims;  // without axes of size one
  AxisSet unreduced = 0, reduced = 0;
  uint64_t padded = 0;   // the dimensions that may be padded
  bool is_open = false;  // a dimension is unconstrained
};

namespace {

void check_unique(const PartitionSpec& spec) {
  std::set<std::string> seen;
  const auto add = [&](const std::vector<std::string>& names) {
    for (const std::string& name : names)
      if (!seen.insert(name).second)
        fail(ErrorKind::duplicate_axis, "NamedSharding",
             "mesh axis \"{}\" appears twice in {}. An axis can shard only one dim.", name, spec.to_string());
  };
  for (const SpecEntry& entry : spec.entries()) add(entry.axes());
  add(spec.unreduced_axes()), add(spec.reduced_axes());
}

std::unique_ptr<ShardingImpl> make_sharding(Mesh mesh, PartitionSpec spec) {
  check_unique(spec);
  const auto axes_of = [&](const std::vector<std::string>& names) {
    DimAxes axes;
    for (const std::string& name : names) {
      const int axis = mesh.impl()->find(name);
      if (axis < 0)
        fail(ErrorKind::unknown_axis, "NamedSharding",
             "mesh axis \"{}\" of {} is not in the mesh ({}). Use one of its axes.", name, spec.to_string(),
             mesh.to_string());
      if (mesh.impl()->axes[axis].size > 1) axes.push_back(axis);
    }
    return axes;
  };
  auto result = std::make_unique<ShardingImpl>();
  for (const SpecEntry& entry : spec.entries()) {
    if (entry.pads()) result->padded |= uint64_t{1} << result->dims.size();
    result->dims.push_back(axes_of(entry.axes()));
    result->is_open |= entry.is_unconstrained();
  }
  result->unreduced = axes_of(spec.unreduced_axes()).axis_set();
  result->reduced = axes_of(spec.reduced_axes()).axis_set();
  while (!result->dims.empty() && result->dims.back().empty()) result->dims.pop_back();
  result->mesh = mesh;
  result->spec = std::move(spec);
  return result;
}

PartitionSpec without_trailing_nones(const PartitionSpec& spec) {
  std::vector<SpecEntry> entries = spec.entries();
  while (!entries.empty() && entries.back().empty()) entries.pop_back();
  return PartitionSpec(std::move(entries)).unreduced(spec.unreduced_axes()).reduced(spec.reduced_axes());
}

std::string canonical_text(const PartitionSpec& spec) {
  std::string text;
  const auto add = [&](const std::vector<std::string>& names) {
    for (const std::string& name : names) text += fmt::format("{}:{},", name.size(), name);
    text += '|';
  };
  for (const SpecEntry& entry : spec.entries()) {
    if (entry.pads()) text += '+';
    entry.is_unconstrained() ? void(text += "?|") : add(entry.axes());
  }
  for (auto names : {spec.unreduced_axes(), spec.reduced_axes()}) {
    std::sort(names.begin(), names.end());
    text += '/';
    add(names);
  }
  return text;
}

}  // namespace
}  // namespace detail

namespace {

const detail::ShardingImpl* interned(Mesh mesh, const PartitionSpec& spec) {
  static std::mutex mutex;
  // never destroyed: see make_mesh
  static auto& shardings =
      *new std::map<std::pair<const detail::MeshImpl*, std::string>, std::unique_ptr<detail::ShardingImpl>>;
  std::lock_guard lock(mutex);
  const auto key = std::pair(mesh.impl(), detail::canonical_text(spec));
  auto found = shardings.find(key);
  if (found == shardings.end()) found = shardings.emplace(key, detail::make_sharding(mesh, spec)).first;
  return found->second.get();
}

std::string mesh_text(Mesh mesh) {
  std::vector<std::string> parts;
  for (const MeshAxis& axis : mesh.axes()) parts.push_back(fmt::format("'{}': {}", axis.name, axis.size));
  return fmt::format("Mesh({})", fmt::join(parts, ", "));
}

}  // namespace

NamedSharding::NamedSharding(Mesh mesh, PartitionSpec spec) {
  if (mesh.empty()) fail(ErrorKind::invalid_argument, "NamedSharding", "no mesh given. Make one with make_mesh.");
  spelled_ = interned(mesh, spec);
  const bool has_more = !spec.entries().empty() && spec.entries().back().empty();
  impl_ = has_more ? interned(mesh, detail::without_trailing_nones(spec)) : spelled_;
}

SingleDeviceSharding::operator NamedSharding() const { return NamedSharding(make_mesh({}, {.devices = {device}}), {}); }

Mesh NamedSharding::mesh() const { return impl_->mesh; }
const PartitionSpec& NamedSharding::spec() const { return impl_->spec; }
const PartitionSpec& NamedSharding::spelled_spec() const { return spelled_->spec; }

std::string NamedSharding::to_string() const {
  if (mesh().axes().empty()) return fmt::format("SingleDeviceSharding(device={})", mesh().devices()[0]);
  return fmt::format("NamedSharding(mesh={}, spec={})", mesh_text(mesh()), spelled_spec().to_string());
}

int64_t NamedSharding::shard_bytes(const Shape& shape, DType dtype) const {
  return detail::placed_type(dtype, shape, *this)->bytes;
}

Shape NamedSharding::shard_shape(const Shape& shape) const {
  return detail::placed_type(DType::float32, shape, *this)->local;
}

std::vector<IndexRanges> NamedSharding::devices_indices_map(const Shape& shape) const {
  const detail::Type* type = detail::placed_type(DType::float32, shape, *this);
  std::vector<IndexRanges> blocks;
  for (int device = 0; device < mesh().size(); ++device)
    blocks.push_back(detail::block_of(type, detail::coordinates_of(type->mesh, device)));
  return blocks;
}

std::vector<int> NamedSharding::replica_ids(const Shape& shape) const {
  const detail::Type* type = detail::placed_type(DType::float32, shape, *this);
  // Compares block numbers instead of blocks, because several blocks of a padded dimension are empty. All blocks of a
  // dimension of size 0 are the same.
  std::map<std::vector<int64_t>, int> seen;
  std::vector<int> ids;
  for (int device = 0; device < mesh().size(); ++device) {
    const detail::Coordinates coordinates = detail::coordinates_of(type->mesh, device);
    std::vector<int64_t> numbers;
    for (size_t d = 0; d < shape.size(); ++d)
      numbers.push_back(shape[d] == 0 ? 0 : detail::block_number(type->mesh, type->dims[d], coordinates));
    ids.push_back(seen[numbers]++);
  }
  return ids;
}

int NamedSharding::distinct_shard_count(const Shape& shape) const {
  const std::vector<int> ids = replica_ids(shape);
  return static_cast<int>(std::count(ids.begin(), ids.end(), 0));
}

bool NamedSharding::is_fully_replicated() const {
  return impl_->unreduced == 0 &&
         std::all_of(impl_->dims.begin(), impl_->dims.end(), [](const auto& d) { return d.empty(); });
}

bool NamedSharding::is_equivalent_to(const NamedSharding& other, int ndim) const {
  if (*this == other) return true;
  if (mesh().devices() != other.mesh().devices()) return false;
  int64_t n = 1;
  for (const NamedSharding* s : {this, &other}) n *= s->mesh().size();
  const Shape shape(ndim, n);  // every sharding divides every dimension
  const auto blocks = [&](const NamedSharding& s) {
    return NamedSharding(s.mesh(), s.spec()).devices_indices_map(shape);
  };
  const bool same_sums = impl_->unreduced == other.impl_->unreduced && (!impl_->unreduced || mesh() == other.mesh());
  return same_sums && blocks(*this) == blocks(other);
}

namespace detail {

const Type* placed_type(DType dtype, const Shape& shape, const NamedSharding& sharding, const char* verb) {
  const ShardingImpl& s = *sharding.impl();
  const PartitionSpec& spec = sharding.spelled_spec();
  if (s.is_open)
    fail(ErrorKind::unconstrained, verb,
         "{} leaves a dim of the shape {} unconstrained, which only a constraint on a placed array can resolve. Give "
         "its mesh axis, or none.",
         spec.to_string(), to_string(shape));
  if (spec.entries().size() > shape.size())
    fail(ErrorKind::rank_mismatch, verb, "{} names {} dims, the shape {} has {}. Use a shorter spec.", spec.to_string(),
         spec.entries().size(), to_string(shape), shape.size());
  return intern({.dtype = dtype,
                 .shape = shape,
                 .mesh = s.mesh.impl(),
                 .dims = s.dims,
                 .unreduced = s.unreduced,
                 .reduced = s.reduced,
                 .padded = s.padded},
                verb);
}

NamedSharding sharding_of(const Type* type) {
  const auto names = [&](AxisSet set) {
    std::vector<std::string> result;
    for (size_t a = 0; a < type->mesh->axes.size(); ++a)
      if (set >> a & 1) result.push_back(type->mesh->axes[a].name);
    return result;
  };
  std::vector<SpecEntry> entries;
  for (const DimAxes& dim : type->dims) {
    std::vector<std::string> axes;
    for (int a : dim) axes.push_back(type->mesh->axes[a].name);
    const bool pads = type->padded >> entries.size() & 1;
    entries.push_back(SpecEntry(axes, pads ? Uneven::pad : Uneven::error));
  }
  while (!entries.empty() && entries.back().empty()) entries.pop_back();
  PartitionSpec spec(std::move(entries));
  if (type->unreduced) spec = spec.unreduced(names(type->unreduced));
  if (type->reduced) spec = spec.reduced(names(type->reduced));
  return NamedSharding(Mesh(type->mesh), spec);
}

}  // namespace detail
}  // namespace tessera
