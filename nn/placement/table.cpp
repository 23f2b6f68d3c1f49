// Computes the rows of a placement table and their sums.
#include "nn/placement/table.h"

#include <algorithm>
#include <map>

#include "nn/placement/paths.h"
#include "sharding/array/host_memory.h"
#include "nn/placement/resolve.h"
#include "sharding/placement/named_sharding.h"

namespace tessera::nn {

namespace {

int64_t devices_of(const PlacementRow& row) {
  int64_t devices = 1;
  for (const MeshAxis& axis : row.mesh) devices *= axis.size;
  return devices;
}

// Returns the mesh axes over which the array is sharded.
std::vector<std::string> dividing_axes(const PartitionSpec& spec) {
  std::vector<std::string> axes;
  for (const SpecEntry& entry : spec.entries()) axes.insert(axes.end(), entry.axes().begin(), entry.axes().end());
  axes.insert(axes.end(), spec.unreduced_axes().begin(), spec.unreduced_axes().end());
  return axes;
}

std::optional<std::vector<std::string>> names_of(const Axes* axes) {
  if (!axes) return std::nullopt;
  std::vector<std::string> names;
  for (const AxisName& name : *axes) names.push_back(name.to_string());
  return names;
}

// Returns the shape with padding; an empty shape if nothing is padded.
Shape padded_shape(const PlacementRow& row, const NamedSharding& sharding) {
  Shape shape = row.shard_shape;
  const std::vector<SpecEntry>& entries = sharding.spec().entries();
  for (size_t d = 0; d < entries.size(); ++d)
    for (const std::string& axis : entries[d].axes()) shape[d] *= sharding.mesh().size(axis);
  return shape == row.shape ? Shape() : shape;
}

PlacementRow make_row(const Leaf& leaf) {
  const Array& x = *leaf.value;
  const int64_t bytes = x.size() * item_size(x.dtype());
  return {.path = leaf.path,
          .axes = names_of(leaf.axes),
          .spec = "uncommitted",
          .shape = x.shape(),
          .shard_shape = x.shape(),
          .dtype = x.dtype(),
          .num_elements = x.size(),
          .bytes = bytes,
          .bytes_per_device = bytes};
}

PlacementRow make_row(const Leaf& leaf, const NamedSharding& sharding) {
  PlacementRow row = make_row(leaf);
  row.spec = sharding.spec().to_string();
  row.shard_shape = sharding.shard_shape(row.shape);
  row.bytes_per_device = sharding.shard_bytes(row.shape, row.dtype);
  row.mesh = sharding.mesh().axes();
  row.stage = detail::stage_name(sharding.mesh());
  row.divided_over = dividing_axes(sharding.spec());
  row.num_replicas = sharding.mesh().size();
  for (const std::string& axis : row.divided_over) row.num_replicas /= sharding.mesh().size(axis);
  row.padded_shape = padded_shape(row, sharding);
  if (tessera::detail::host_tensors(*leaf.value)) row.memory_kind = "pinned_host";
  return row;
}

template <class MakeRow>
PlacementTable make_table(const Leaves& leaves, MakeRow row_of) {
  std::vector<PlacementRow> rows;
  for (const Leaf& leaf : leaves)
    if (!leaf.value->is_absent()) rows.push_back(row_of(leaf));
  return PlacementTable(std::move(rows));
}

int64_t sum_of(const std::vector<PlacementRow>& rows, std::string_view path, int64_t PlacementRow::*number) {
  int64_t sum = 0;
  for (const PlacementRow& row : rows)
    if (detail::is_below(row.path, path)) sum += row.*number;
  return sum;
}

// Returns the bytes per device in this kind of memory. With stages, the value of the stage with the most.
int64_t bytes_in(const std::vector<PlacementRow>& rows, std::string_view path, std::string_view memory_kind) {
  std::map<std::string, int64_t> by_stage;
  for (const PlacementRow& row : rows)
    if (detail::is_below(row.path, path) && row.memory_kind == memory_kind) by_stage[row.stage] += row.bytes_per_device;
  int64_t most = 0;
  for (const auto& [stage, bytes] : by_stage)
    if (!stage.empty()) most = std::max(most, bytes);
  return by_stage[""] + most;
}

AxisTotals totals_of(const std::vector<PlacementRow>& rows, const MeshAxis& axis) {
  AxisTotals totals{.axis = axis};
  double held = 0, distinct = 0;  // bytes of the devices along the axis, at one position of the other axes
  for (const PlacementRow& row : rows) {
    if (std::find(row.mesh.begin(), row.mesh.end(), axis) == row.mesh.end()) continue;
    const bool divided =
        std::find(row.divided_over.begin(), row.divided_over.end(), axis.name) != row.divided_over.end();
    (divided ? totals.divided_bytes : totals.whole_bytes) += row.bytes;
    const auto bytes = static_cast<double>(row.bytes_per_device), size = static_cast<double>(axis.size);
    held += bytes * size;
    distinct += divided ? bytes * size : bytes;
  }
  if (distinct > 0) totals.copies = held / distinct;
  return totals;
}

}  // namespace

int64_t PlacementTable::element_count(std::string_view path) const {
  return sum_of(rows_, path, &PlacementRow::num_elements);
}
int64_t PlacementTable::bytes(std::string_view path) const { return sum_of(rows_, path, &PlacementRow::bytes); }
int64_t PlacementTable::bytes_per_device(std::string_view path) const { return bytes_in(rows_, path, ""); }
int64_t PlacementTable::host_bytes_per_device(std::string_view path) const {
  return bytes_in(rows_, path, "pinned_host");
}

double PlacementTable::replication() const {
  double held = 0, distinct = 0;
  for (const PlacementRow& row : rows_) {
    if (row.mesh.empty()) continue;
    held += static_cast<double>(row.bytes_per_device) * static_cast<double>(devices_of(row));
    distinct += static_cast<double>(row.bytes);
  }
  return distinct > 0 ? held / distinct : 1;
}

std::vector<AxisTotals> PlacementTable::over_axes() const {
  std::vector<MeshAxis> axes;
  for (const PlacementRow& row : rows_)
    for (const MeshAxis& axis : row.mesh)
      if (axis.size > 1 && std::find(axes.begin(), axes.end(), axis) == axes.end()) axes.push_back(axis);
  std::vector<AxisTotals> all;
  for (const MeshAxis& axis : axes) all.push_back(totals_of(rows_, axis));
  return all;
}

PlacementTable placement_table(const Leaves& leaves) {
  return make_table(leaves, [](const Leaf& leaf) {
    return leaf.value->is_committed() ? make_row(leaf, leaf.value->sharding()) : make_row(leaf);
  });
}

PlacementTable placement_table(const Leaves& leaves, const MeshRules& mesh_rules) {
  const std::vector<MeshRules> leaf_rules = detail::stage_mesh_rules(leaves, mesh_rules, "placement_table");
  return make_table(leaves, [&](const Leaf& leaf) {
    const MeshRules& own = leaf_rules[&leaf - leaves.data()];
    return make_row(leaf, NamedSharding(own.mesh(), resolve(leaf, own, "placement_table").spec));
  });
}

}  // namespace tessera::nn
