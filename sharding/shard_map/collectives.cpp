// Implements each collective as a row of the redistribution table, on the tensors of a varying value.
#include "sharding/shard_map/collectives.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/ranges.h>

#include "sharding/array/autograd.h"
#include "sharding/array/late_checks.h"
#include "sharding/base/fail.h"
#include "sharding/operations/argument_checks.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/shape/creation.h"
#include "sharding/operations/shape/shapes.h"
#include "sharding/redistribution/convert.h"
#include "sharding/redistribution/varying.h"

namespace tessera {

using namespace detail;

namespace {

// ---- axes and operands

// The axes of a collective, without axes of size one.
struct Along {
  const MeshImpl* mesh = nullptr;
  DimAxes axes;
  int n = 1;  // devices
};

int manual_axis(const char* verb, const std::string& name) {
  const ManualAxes& manual = manual_axes();
  if (!manual.mesh)
    fail(ErrorKind::unknown_axis, verb,
         "over the mesh axis \"{}\" outside shard_map. Call it in a function that shard_map runs.", name);
  const int axis = manual.mesh->find(name);
  if (axis < 0)
    fail(ErrorKind::unknown_axis, verb, "mesh axis \"{}\" is not in the mesh ({}). Use one of its axes.", name,
         Mesh(manual.mesh).to_string());
  if (!(manual.axes >> axis & 1))
    fail(ErrorKind::unknown_axis, verb,
         "mesh axis \"{}\" is not manual: shard_map was given axis_names {}. Name it there.", name,
         manual.mesh->names(manual.axes));
  return axis;
}

Along axes_of(const char* verb, const SpecEntry& mesh_axes) {
  if (mesh_axes.is_unconstrained())
    fail(ErrorKind::invalid_argument, verb,
         "unconstrained given, expected mesh axes. Name those to communicate along.");
  Along result;
  AxisSet seen = 0;
  for (const std::string& name : mesh_axes.axes()) {
    const int axis = manual_axis(verb, name);
    if (seen >> axis & 1) fail(ErrorKind::duplicate_axis, verb, "mesh axis \"{}\" is named twice.", name);
    seen |= AxisSet{1} << axis;
    if (const int64_t size = manual_axes().mesh->axes[axis].size; size > 1)
      result.axes.push_back(axis), result.n *= static_cast<int>(size);
  }
  result.mesh = manual_axes().mesh;
  return result;
}

Provenance cause_of(const char* verb, const Operand& x) {
  return {.operation = verb, .where = x.where(), .reason = explicit_reason(), .path = {}};
}

// Returns x as a value that varies along the axes.
ArrayPtr operand_of(const Operand& x, const Along& axes, const Provenance& cause) {
  return varied(inside(x.array(), cause.operation), axes.axes.axis_set(), cause);
}

// Gathers these dimensions over all other mesh axes, because blocks along a manual axis are joined or split there.
ArrayPtr whole_along(const ArrayPtr& a, std::initializer_list<int> dims, const Provenance& cause) {
  TypeKey key = *a->type;
  for (int d : dims) key.dims[d] = {};
  return convert(*a, a, intern(std::move(key)), cause);
}

Array carried(const ArrayPtr& a, Resharding resharding) {
  const auto way = std::make_shared<const Resharding>(std::move(resharding));
  const ArrayPtr from = convert(*a, a, a->type, way->cause);
  Tensors tensors = way->forward(from->local);
  record_function(
      way->cause.operation, from->local, tensors,
      [way](Tensors gradients) { return way->backward(std::move(gradients)); },
      [way](const Tensors& gradients) { return way->forward(gradients, /*in_backward_pass=*/true); });
  ArrayPtr made = make_array(way->to, std::move(tensors));
  made->mesh_rules = a->mesh_rules;
  return Array(std::move(made));
}

Shape with_dim(Shape shape, int dim, int64_t size) {
  shape.insert(shape.begin() + dim, size);
  return shape;
}

Shape without_dim(Shape shape, int dim) {
  shape.erase(shape.begin() + dim);
  return shape;
}

int checked_new_dim(const char* verb, const Array& x, int dim) {
  const int n = x.ndim() + 1;
  if (dim < -n || dim >= n)
    fail(ErrorKind::invalid_argument, verb, "a new dim {} of {}, expected {} to {}.", dim, x.type_string(), -n, n - 1);
  return dim < 0 ? dim + n : dim;
}

// Checks the size of a dimension. Untiled, it needs one element per device; tiled, one block.
void check_parts(const char* verb, const Array& x, int dim, const SpecEntry& mesh_axes, const Along& axes, bool tiled) {
  const int64_t size = x.shape()[dim];
  if (!tiled && size != axes.n)
    fail(ErrorKind::size_mismatch, verb, "dim {} of {} = {}, expected {}, the devices along {}. Use tiled to split it.",
         dim, x.type_string(), size, axes.n, fmt::join(mesh_axes.axes(), ","));
  if (size % axes.n)
    fail(ErrorKind::not_divisible, verb, "dim {} of {} = {} is not divisible by {}, the devices along {}.", dim,
         x.type_string(), size, axes.n, fmt::join(mesh_axes.axes(), ","));
}

}  // namespace

// ---- sums and extrema

Array psum(Operand x, const SpecEntry& mesh_axes) {
  const Along axes = axes_of("psum", mesh_axes);
  const Provenance cause = cause_of("psum", x);
  if (!x.array().is_absent() && x.array().dtype() == boolean) return psum({astype(x, int32), x.where()}, mesh_axes);
  const ArrayPtr a = operand_of(x, axes, cause);
  if (axes.n == 1) return Array(a);
  TypeKey key = *a->type;
  key.varying &= ~axes.axes.axis_set();
  return carried(a, resharding_over(Row::unreduced_to_replicated, a->type, intern(key), axes.axes, 0, 0, cause));
}

Array pmean(Operand x, const SpecEntry& mesh_axes) {
  const Array sum = psum({as_floating(x), x.where()}, mesh_axes);
  return Operand(sum, x.where()) / static_cast<double>(axes_of("pmean", mesh_axes).n);
}

namespace {

// The backward pass of an extremum: each device with the extremum gets the same fraction of the gradient.
struct SharesOfExtremum {
  const Type *from, *to;
  Tensors x, most;
  Resharding sum;  // over the devices

  int owner(size_t i) const { return project(from->mesh, from->slots, static_cast<int>(i), to->slots); }

  // Returns each device's fraction of the gradient.
  Tensors parts() const {
    Tensors here;
    for (size_t i = 0; i < x.size(); ++i) here.push_back(at::eq(x[i], most[owner(i)]).to(x[i].scalar_type()));
    const Tensors holders = sum.forward(here, /*in_backward_pass=*/true);
    for (size_t i = 0; i < here.size(); ++i) here[i] = here[i] / holders[owner(i)];
    return here;
  }
  Tensors backward(const Tensors& gradients) const {
    Tensors shares = parts();
    for (size_t i = 0; i < shares.size(); ++i) shares[i] = shares[i] * gradients[owner(i)];
    return shares;
  }
  Tensors forward(const Tensors& gradients) const {
    Tensors shares = parts();
    for (size_t i = 0; i < shares.size(); ++i) shares[i] = shares[i] * gradients[i];
    return sum.forward(shares, /*in_backward_pass=*/true);
  }
};

Array extremum(const char* verb, Collective collective, const Operand& x, const SpecEntry& mesh_axes) {
  const Along axes = axes_of(verb, mesh_axes);
  const Provenance cause = cause_of(verb, x);
  ArrayPtr a = operand_of(x, axes, cause);
  a = convert(*a, a, with_unreduced(a->type, 0), cause);
  if (axes.n == 1) return Array(a);
  TypeKey key = *a->type;
  key.varying &= ~axes.axes.axis_set();
  const Type *from = a->type, *to = intern(key);
  Tensors most = reduce_over(from, to, axes.axes, a->local, collective, cause), values;
  for (const at::Tensor& t : a->local) values.push_back(t.detach());
  const auto shares = std::make_shared<const SharesOfExtremum>(
      SharesOfExtremum{from, to, std::move(values), most,
                       resharding_over(Row::unreduced_to_replicated, from, to, axes.axes, 0, 0, cause)});
  record_function(
      verb, a->local, most, [shares](const Tensors& gradients) { return shares->backward(gradients); },
      [shares](const Tensors& gradients) { return shares->forward(gradients); });
  ArrayPtr made = make_array(to, std::move(most));
  made->mesh_rules = a->mesh_rules;
  return Array(std::move(made));
}

}  // namespace

Array pmax(Operand x, const SpecEntry& mesh_axes) { return extremum("pmax", Collective::all_reduce_max, x, mesh_axes); }
Array pmin(Operand x, const SpecEntry& mesh_axes) { return extremum("pmin", Collective::all_reduce_min, x, mesh_axes); }

// ---- gathering, scattering, exchanging

Array all_gather(Operand x, const SpecEntry& mesh_axes, const AllGatherOptions& options) {
  const Along axes = axes_of("all_gather", mesh_axes);
  const Provenance cause = cause_of("all_gather", x);
  const Array given(inside(x.array(), "all_gather"));
  if (!options.tiled) {
    const int dim = checked_new_dim("all_gather", given, options.dim);
    const Array stacked = reshape({given, x.where()}, with_dim(given.shape(), dim, 1));
    return all_gather({stacked, x.where()}, mesh_axes, {.dim = dim, .tiled = true, .to = options.to});
  }
  const int dim = checked_dim("all_gather", given, options.dim);
  const ArrayPtr a = whole_along(operand_of({given, x.where()}, axes, cause), {dim}, cause);
  if (axes.n == 1) return Array(a);
  TypeKey key = *a->type;
  key.shape[dim] *= axes.n;
  const bool varies = options.to == Vma::varying;
  if (!varies) key.varying &= ~axes.axes.axis_set();
  const Row row = varies ? Row::sharded_to_reduced : Row::sharded_to_replicated;
  return carried(a, resharding_over(row, a->type, intern(key), axes.axes, dim, 0, cause));
}

Array psum_scatter(Operand x, const SpecEntry& mesh_axes, const PsumScatterOptions& options) {
  const Along axes = axes_of("psum_scatter", mesh_axes);
  const Provenance cause = cause_of("psum_scatter", x);
  const Array given(inside(x.array(), "psum_scatter"));
  const int dim = checked_dim("psum_scatter", given, options.scatter_dim);
  check_parts("psum_scatter", given, dim, mesh_axes, axes, options.tiled);
  ArrayPtr a = whole_along(operand_of({given, x.where()}, axes, cause), {dim}, cause);
  Array part(a);
  if (axes.n > 1) {
    TypeKey key = *a->type;
    key.shape[dim] /= axes.n;
    part = carried(a, resharding_over(Row::unreduced_to_sharded, a->type, intern(key), axes.axes, dim, 0, cause));
  }
  return options.tiled ? part : reshape({part, x.where()}, without_dim(part.shape(), dim));
}

namespace {

Array exchange(const Array& x, const Along& axes, int split, int concat, const Provenance& cause) {
  const ArrayPtr a = whole_along(operand_of({x, cause.where}, axes, cause), {split, concat}, cause);
  if (axes.n == 1) return Array(a);
  TypeKey key = *a->type;
  key.shape[split] /= axes.n;
  key.shape[concat] *= axes.n;
  return carried(a, resharding_over(Row::sharded_to_sharded, a->type, intern(key), axes.axes, concat, split, cause));
}

// Removes dimension `split`, which has one element per device, and stacks the received values along a new dimension
// `concat`.
Array stacked_exchange(const Array& x, const Along& axes, int split, int concat, const Provenance& cause) {
  const int place = concat <= split ? concat : concat + 1, from = concat <= split ? split + 1 : split;
  const Array y = reshape({x, cause.where}, with_dim(x.shape(), place, 1));
  const Array moved = exchange(y, axes, from, place, cause);
  return reshape({moved, cause.where}, without_dim(moved.shape(), from));
}

}  // namespace

Array all_to_all(Operand x, const SpecEntry& mesh_axes, int split_dim, int concat_dim, const AllToAllOptions& options) {
  const Along axes = axes_of("all_to_all", mesh_axes);
  const Provenance cause = cause_of("all_to_all", x);
  const Array given(inside(x.array(), "all_to_all"));
  const int split = checked_dim("all_to_all", given, split_dim);
  const int concat = checked_dim("all_to_all", given, concat_dim);
  check_parts("all_to_all", given, split, mesh_axes, axes, options.tiled);
  if (!options.tiled) return stacked_exchange(given, axes, split, concat, cause);
  if (split != concat) return exchange(given, axes, split, concat, cause);
  Shape parts = with_dim(given.shape(), split, axes.n);
  parts[split + 1] /= axes.n;
  const Array moved = stacked_exchange(reshape({given, x.where()}, parts), axes, split, split, cause);
  return reshape({moved, x.where()}, given.shape());
}

Array ppermute(Operand x, const SpecEntry& mesh_axes, const std::vector<std::pair<int, int>>& pairs) {
  const Along axes = axes_of("ppermute", mesh_axes);
  const Provenance cause = cause_of("ppermute", x);
  std::vector<int> senders(axes.n, -1);
  std::vector<bool> sends(axes.n);
  for (const auto& [from, to] : pairs) {
    if (from < 0 || to < 0 || from >= axes.n || to >= axes.n)
      fail(ErrorKind::invalid_argument, "ppermute", "the pair ({}, {}) for {}, expected numbers from 0 to {}.", from,
           to, x.array().type_string(), axes.n - 1);
    if (senders[to] >= 0 || sends[from])
      fail(ErrorKind::duplicate_pair, "ppermute", "the pair ({}, {}) for {}: device {} {} already. Name each once.",
           from, to, x.array().type_string(), senders[to] >= 0 ? to : from, senders[to] >= 0 ? "gets" : "sends");
    senders[to] = from;
    sends[from] = true;
  }
  const ArrayPtr a = operand_of(x, axes, cause);
  if (axes.n == 1) return pairs.empty() ? where(zeros({}, boolean), Array(a), 0) : Array(a);
  return carried(a, permutation(a->type, axes.axes, std::move(senders), cause));
}

// ---- varying values

namespace {

Array varying_along(const char* verb, const Operand& x, const SpecEntry& mesh_axes) {
  const Along axes = axes_of(verb, mesh_axes);
  const ArrayPtr a = inside(x.array(), verb);
  if (const AxisSet already = a->type->varying & axes.axes.axis_set())
    fail(ErrorKind::varying_axis, verb, "{} varies along \"{}\" already. Name the mesh axes along which it is equal.",
         x.array().type_string(), axes.mesh->names(already));
  return Array(varied(a, axes.axes.axis_set(), cause_of(verb, x)));
}

}  // namespace

Array pvary(Operand x, const SpecEntry& mesh_axes) { return varying_along("pvary", x, mesh_axes); }

Array pcast(Operand x, const SpecEntry& mesh_axes, Vma to) {
  if (to == Vma::invarying)
    fail(ErrorKind::varying_axis, "pcast",
         "{} to invarying. A varying value becomes equal by psum, pmax or an invarying all_gather.",
         x.array().type_string());
  return varying_along("pcast", x, mesh_axes);
}

int64_t axis_size(const SpecEntry& mesh_axes) { return axes_of("axis_size", mesh_axes).n; }

namespace {

// Makes a varying value with one tensor per index along the axes.
template <class Make>
Array varying_value(const char* verb, const Along& axes, DType dtype, const Shape& shape, Make make) {
  if (!axes.mesh) fail(ErrorKind::unknown_axis, verb, "outside shard_map. Call it in a function that shard_map runs.");
  const Type* type = intern({.dtype = dtype, .shape = shape, .mesh = axes.mesh, .varying = axes.axes.axis_set()});
  Tensors local;
  for (int i = 0; i < axes.mesh->slots(type->slots); ++i) {
    Coordinates coordinates(axes.mesh);
    unravel(axes.mesh, type->slots, i, coordinates);
    local.push_back(make(block_number(axes.mesh, axes.axes, coordinates), memory_of(axes.mesh)));
  }
  return Array(make_array(type, std::move(local)));
}

}  // namespace

Array axis_index(const SpecEntry& mesh_axes) {
  return varying_value("axis_index", axes_of("axis_index", mesh_axes), int32, {},
                       [](int64_t number, c10::Device device) {
                         return at::full({}, number, at::TensorOptions(device).dtype(at::kInt));
                       });
}

DeviceKeys fold_in_axis(const Key& key, const SpecEntry& mesh_axes) {
  const int n = axes_of("fold_in_axis", mesh_axes).n;
  DeviceKeys result{mesh_axes.axes(), {}};
  for (int i = 0; i < n; ++i) result.keys.push_back(fold_in(key, static_cast<uint32_t>(i)));
  return result;
}

DeviceKeys fold_in(const DeviceKeys& keys, uint32_t data) {
  DeviceKeys result{keys.mesh_axes, {}};
  for (const Key& key : keys.keys) result.keys.push_back(fold_in(key, data));
  return result;
}

std::vector<DeviceKeys> split(const DeviceKeys& keys, int64_t n) {
  std::vector<DeviceKeys> result(static_cast<size_t>(std::max<int64_t>(n, 0)), {keys.mesh_axes, {}});
  for (const Key& key : keys.keys) {
    const std::vector<Key> parts = split(key, n);
    for (size_t i = 0; i < parts.size(); ++i) result[i].keys.push_back(parts[i]);
  }
  return result;
}

Array per_device(const DeviceKeys& keys, const std::function<Array(const Key&)>& draw) {
  const Along axes = axes_of("per_device", SpecEntry(keys.mesh_axes));
  if (static_cast<int>(keys.keys.size()) != axes.n)
    fail(ErrorKind::size_mismatch, "per_device",
         "{} keys for {} devices along ({}). Make them with fold_in_axis inside this shard_map.", keys.keys.size(),
         axes.n, fmt::join(keys.mesh_axes, ", "));
  std::vector<at::Tensor> drawn;
  for (const Key& key : keys.keys) {
    drawn.push_back(to_tensor(draw(key)));
    if (drawn.back().sizes() != drawn[0].sizes() || drawn.back().dtype() != drawn[0].dtype())
      fail(ErrorKind::shape_mismatch, "per_device", "one device draws {}, another {}. Draw the same shape on all.",
           from_tensor(drawn[0]).type_string(), from_tensor(drawn.back()).type_string());
  }
  return varying_value("per_device", axes, static_cast<DType>(drawn[0].scalar_type()), drawn[0].sizes().vec(),
                       [&](int64_t number, c10::Device device) { return moved_to(drawn[number], device); });
}

}  // namespace tessera
