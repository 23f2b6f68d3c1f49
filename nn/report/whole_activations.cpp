// Finds the mesh axes that a call loses, and specs of its operand that would keep them.
#include "nn/report/whole_activations.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace tessera::nn::detail {

namespace {

using tessera::detail::AxisSet;
using tessera::detail::DimAxes;
using tessera::detail::OperationArrays;
using tessera::detail::Type;
using tessera::detail::TypeKey;

// Returns P{"data", none, {"data2", "model"}}.
std::string spec_text(const Type& type) {
  std::vector<std::string> entries;
  for (const DimAxes& axes : type.dims) {
    std::vector<std::string> names;
    for (const int axis : axes) names.push_back('"' + type.mesh->axes[axis].name + '"');
    entries.push_back(names.empty()       ? "none"
                      : names.size() == 1 ? names[0]
                                          : fmt::format("{{{}}}", fmt::join(names, ", ")));
  }
  while (entries.size() > 1 && entries.back() == "none") entries.pop_back();
  return fmt::format("P{{{}}}", fmt::join(entries, ", "));
}

// Returns `type` with these axes on this dimension and on no other; null if they do not divide it.
const Type* with_axes_on(const Type& type, AxisSet axes, size_t dim) {
  TypeKey key = type;
  key.reduced = 0;
  key.unreduced &= ~axes;
  for (DimAxes& of_dim : key.dims) {
    DimAxes kept;
    for (const int axis : of_dim)
      if (!(axes >> axis & 1)) kept.push_back(axis);
    of_dim = kept;
  }
  for (int axis = 0; axis < static_cast<int>(type.mesh->axes.size()); ++axis)
    if (axes >> axis & 1) key.dims[dim].push_back(axis);
  if (key.shape[dim] % type.mesh->count(key.dims[dim].axis_set()) != 0) return nullptr;
  return tessera::detail::intern(std::move(key));
}

AxisSet axes_of(const Type& type) { return type.sharded | type.unreduced | type.varying; }

// Returns a type that the operation keeps and whose result is sharded over the axes; prefers unsharded dimensions.
const Type* constraint_of(const OperationArrays& arrays, size_t operand, AxisSet axes) {
  const Type& given = *arrays.given[operand]->type;
  for (const bool cut_already : {false, true})
    for (size_t dim = 0; dim < given.shape.size(); ++dim) {
      if ((given.dims[dim].axis_set() & ~axes ? true : false) != cut_already) continue;
      const Type* other = with_axes_on(given, axes, dim);
      if (!other) continue;
      const auto plan = arrays.plans->with(operand, other);
      if ((plan.read->sharded & axes) == axes && (plan.result->sharded & axes) == axes) return other;
    }
  return nullptr;
}

}  // namespace

void WholeActivations::add(const tessera::detail::OperationCall& call, const OperationArrays& arrays,
                           const ModuleDataflow& flow) {
  for (Found& f : found_) follow(f, arrays, flow);
  if (!arrays.plans || arrays.results.empty() || arrays.results[0].ndim() == 0) return;
  const ArrayImpl& result = *arrays.results[0].impl();
  for (size_t i = 0; i < arrays.given.size(); ++i) {
    const Type &given = *call.given[i], &read = *call.read[i];
    const AxisSet stays_lost = axes_of(given) & ~axes_of(read) & ~axes_of(*result.type);
    const bool is_large = read.bytes > result.type->bytes;
    const AxisSet lost = (is_large ? given.sharded & ~axes_of(read) : 0) | stays_lost;
    const std::optional<size_t> value = lost && !arrays.given[i]->weight ? flow.find(*arrays.given[i]) : std::nullopt;
    const auto is_same = [&](const Found& f) { return f.value == value && f.axes == lost; };
    if (!value || std::any_of(found_.begin(), found_.end(), is_same)) continue;
    const Type* constraint = constraint_of(arrays, i, lost);
    if (!constraint && !(lost & given.sharded)) continue;  // a partial sum must be reduced somewhere
    found_.push_back({.value = *value,
                      .last = stays_lost ? flow.find(result) : std::nullopt,
                      .axes = lost,
                      .whole = {.module = call.module ? *call.module : "",
                                .operation = call.operation,
                                .maker = flow.value(*value).maker.value_or(""),
                                .type = given.to_string(),
                                .mesh_axes = given.mesh->names(lost),
                                .reason = call.reason ? *call.reason : "",
                                .constraint = constraint ? spec_text(*constraint) : "",
                                .as_it_is = spec_text(read),
                                .bytes_per_device = read.bytes,
                                .where = call.where}});
  }
}

void WholeActivations::follow(Found& f, const OperationArrays& arrays, const ModuleDataflow& flow) const {
  if (!f.last || arrays.results.empty()) return;
  const Type& result = *arrays.results[0].impl()->type;
  for (size_t i = 0; i < arrays.given.size(); ++i) {
    const std::optional<size_t> value = flow.find(*arrays.given[i]);
    if (!value || (value != f.last && value != f.read)) continue;
    const Type& read = *arrays.read[i]->type;
    if (value == f.last && (read.sharded & f.axes)) f.resolved = true;
    const bool continues = value == f.last && !f.resolved && result.shape == read.shape && !(axes_of(result) & f.axes);
    f.read = f.last;
    f.last = continues ? flow.find(*arrays.results[0].impl()) : std::nullopt;
    return;
  }
}

void WholeActivations::place(const ArrayImpl& x, const ModuleDataflow& flow) {
  const std::optional<size_t> value = flow.find(x);
  for (Found& f : found_)
    if (value && f.last == value) f.resolved = true, f.last = std::nullopt;
}

std::vector<WholeActivation> WholeActivations::all() const {
  std::vector<WholeActivation> all;
  for (const Found& f : found_)
    if (!f.resolved) all.push_back(f.whole);
  return all;
}

}  // namespace tessera::nn::detail
