// Interns types and computes their blocks.
#include "sharding/placement/type.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "sharding/base/fail.h"
#include "sharding/placement/element_value.h"

namespace tessera::detail {
namespace {

struct TypeKeyHash {
  size_t operator()(const TypeKey& key) const {
    uint64_t h = reinterpret_cast<uintptr_t>(key.mesh) ^ static_cast<uint64_t>(key.dtype) << 56;
    const auto mix = [&](uint64_t v) { h = (h ^ v) * 0x9E3779B97F4A7C15ull, h ^= h >> 29; };
    for (int64_t s : key.shape) mix(static_cast<uint64_t>(s));
    for (const DimAxes& dim : key.dims) {
      mix(0x51);
      for (int a : dim) mix(a + 1);
    }
    mix(key.unreduced), mix(key.reduced), mix(key.varying);
    return h;
  }
};

struct TypeKeyEqual {
  bool operator()(const TypeKey& a, const TypeKey& b) const {
    return a.mesh == b.mesh && a.dtype == b.dtype && a.shape == b.shape && a.dims == b.dims &&
           a.unreduced == b.unreduced && a.reduced == b.reduced && a.varying == b.varying;
  }
};

std::string axis_product(const MeshImpl* mesh, const DimAxes& dim) {
  std::vector<std::string> parts;
  for (int a : dim) parts.push_back(fmt::format("\"{}\" = {}", mesh->axes[a].name, mesh->axes[a].size));
  return fmt::format("mesh ax{} {}", dim.size() == 1 ? "is" : "es", fmt::join(parts, " x "));
}

// Returns the dimensions that their axes do not divide. Error (not_divisible): one of them may not be padded.
uint64_t padded_dims(const TypeKey& key, const char* verb) {
  uint64_t padded = 0;
  for (size_t d = 0; d < key.dims.size(); ++d) {
    if (key.dims[d].empty() || key.shape[d] % key.mesh->count(key.dims[d].axis_set()) == 0) continue;
    padded |= uint64_t{1} << d;
    if (!(key.padded >> d & 1))
      fail(ErrorKind::not_divisible, verb,
           "dim {} of {} = {} is not divisible by {}. Change the spec, the mesh or the dim. With Uneven::pad its "
           "blocks are padded.",
           d, to_string(key.shape), key.shape[d], axis_product(key.mesh, key.dims[d]));
  }
  return padded;
}

std::unique_ptr<Type> make_type(const TypeKey& key, const char* verb) {
  auto type = std::make_unique<Type>();
  static_cast<TypeKey&>(*type) = key;
  check_size(verb, key.dtype, key.shape);
  type->local = key.shape;
  type->sharded = axis_set_of(key.dims);
  for (size_t d = 0; d < key.dims.size(); ++d) {
    const int n = key.dims[d].empty() ? 1 : key.mesh->count(key.dims[d].axis_set());
    type->local[d] = block_size(key.shape[d], n);
  }
  type->bytes = item_size(key.dtype);
  for (int64_t s : type->local) type->bytes *= s;
  for (int64_t s : key.shape) type->elements *= s;
  if (key.mesh) type->slots = key.mesh->stored(type->own());
  return type;
}

}  // namespace

const Type* intern(TypeKey key, const char* verb) {
  key.dims.resize(key.shape.size());
  key.padded = padded_dims(key, verb);  // computed from the other members
  static std::mutex mutex;
  // never destroyed: see make_mesh
  static auto& types = *new std::unordered_map<TypeKey, std::unique_ptr<Type>, TypeKeyHash, TypeKeyEqual>;
  std::lock_guard lock(mutex);
  if (auto found = types.find(key); found != types.end()) return found->second.get();
  auto type = make_type(key, verb);
  return types.emplace(std::move(key), std::move(type)).first->second.get();
}

const Type* uncommitted_type(DType dtype, Shape shape) { return intern({.dtype = dtype, .shape = std::move(shape)}); }

namespace {

template <class T>
const Type* with(const Type* type, T TypeKey::*member, T value) {
  if (type->*member == value) return type;
  TypeKey key = *type;
  key.*member = value;
  return intern(std::move(key));
}

}  // namespace

const Type* with_reduced(const Type* type, AxisSet reduced) { return with(type, &TypeKey::reduced, reduced); }
const Type* with_unreduced(const Type* type, AxisSet unreduced) { return with(type, &TypeKey::unreduced, unreduced); }
const Type* with_dtype(const Type* type, DType dtype) { return with(type, &TypeKey::dtype, dtype); }
const Type* at_rest(const Type* type) { return with_unreduced(with_reduced(type, 0), 0); }
const Type* on_mesh(const Type* type, const MeshImpl* mesh) {
  return type->mesh ? type : with(type, &TypeKey::mesh, mesh);
}

const Type* without_axes(const Type* type, AxisSet axes) {
  TypeKey key = *type;
  for (DimAxes& dim : key.dims) {
    const DimAxes all = std::exchange(dim, {});
    for (const int axis : all)
      if (!(axes >> axis & 1)) dim.push_back(axis);
  }
  return intern(std::move(key));
}

const Type* cut_further(const Type* type, const std::vector<std::string>& names) {
  const MeshImpl* mesh = type->mesh;
  if (!mesh) return type;
  std::vector<int> axes;
  int devices = 1;
  for (const std::string& name : names) {
    const int axis = mesh->find(name);
    if (axis < 0 || mesh->axes[axis].size == 1 || type->own() >> axis & 1) continue;
    axes.push_back(axis);
    devices *= static_cast<int>(mesh->axes[axis].size);
  }
  for (size_t d = 0; d < type->shape.size() && devices > 1; ++d) {
    if (type->is_padded(d) || type->local[d] % devices) continue;
    TypeKey key = *type;
    for (int axis : axes) key.dims[d].push_back(axis);
    return intern(std::move(key));
  }
  return type;
}

void check_axes(const char* verb, const char* option, const std::vector<std::string>& axes, const MeshImpl* mesh) {
  for (const std::string& name : axes) {
    if (std::count(axes.begin(), axes.end(), name) > 1)
      fail(ErrorKind::invalid_argument, verb, "{}: \"{}\" given twice, expected each axis once.", option, name);
    if (mesh && mesh->find(name) < 0)
      fail(ErrorKind::unknown_axis, verb, "{}: \"{}\" given, expected an axis of the mesh ({}).", option, name,
           Mesh(mesh).to_string());
  }
}

AxisSet axis_set_of(const std::vector<DimAxes>& dims) {
  AxisSet mask = 0;
  for (const DimAxes& dim : dims) mask |= dim.axis_set();
  return mask;
}

int64_t block_number(const MeshImpl* mesh, const DimAxes& axes, const int* coordinates) {
  int64_t number = 0;
  for (int a : axes) number = number * mesh->axes[a].size + coordinates[a];
  return number;
}

IndexRanges block_of(const Type* type, const int* coordinates) {
  IndexRanges ranges;
  for (size_t d = 0; d < type->shape.size(); ++d) {
    const int64_t start = block_number(type->mesh, type->dims[d], coordinates) * type->local[d];
    ranges.emplace_back(std::min(start, type->shape[d]), std::min(start + type->local[d], type->shape[d]));
  }
  return ranges;
}

std::string Type::to_string() const {
  const auto dim_text = [&](size_t d) {
    if (dims[d].empty()) return fmt::format("{}", shape[d]);
    std::vector<std::string_view> names;
    for (int a : dims[d]) names.push_back(mesh->axes[a].name);
    const int64_t padding = local[d] * mesh->count(dims[d].axis_set()) - shape[d];
    const std::string size = fmt::format("{}{}", shape[d], padding ? fmt::format("+{}", padding) : "");
    return names.size() == 1 ? fmt::format("{}@{}", size, names[0])
                             : fmt::format("{}@({})", size, fmt::join(names, ","));
  };
  std::vector<std::string> parts;
  for (size_t d = 0; d < shape.size(); ++d) parts.push_back(dim_text(d));
  std::string text = fmt::format("{}[{}]", name_of(dtype), fmt::join(parts, ","));
  std::vector<std::string> sets;
  if (unreduced) sets.push_back("U:" + mesh->names(unreduced));
  if (reduced) sets.push_back("R:" + mesh->names(reduced));
  if (varying) sets.push_back("V:" + mesh->names(varying));
  return sets.empty() ? text : fmt::format("{}{{{}}}", text, fmt::join(sets, " "));
}

}  // namespace tessera::detail
