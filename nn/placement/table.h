// placement_table: the sharding of every array of a tree and its bytes per device, before or after placing.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nn/tree/tree.h"
#include "nn/tree/tree_of_arrays.h"
#include "sharding/placement/mesh.h"
#include "sharding/placement/mesh_rules.h"

namespace tessera::nn {

// One array of a tree.
struct PlacementRow {
  std::string path;                              // layers.2.mlp.up.kernel
  std::optional<std::vector<std::string>> axes;  // dimension names: embed, none, @model; nullopt for a bare array
  std::string spec;                              // in JAX's form, P(None, 'model'); "uncommitted" if on no mesh
  Shape shape;                                   // global
  Shape shard_shape;                             // shape on one device, with padding
  DType dtype = float32;
  int64_t num_elements = 0;                    // global
  int64_t bytes = 0;                           // global
  int64_t bytes_per_device = 0;                // bytes of one shard, as if every device stored its own copy
  int64_t num_replicas = 1;                    // devices that hold the same shard; 1: not replicated
  std::vector<MeshAxis> mesh = {};             // empty if on no mesh
  std::vector<std::string> divided_over = {};  // mesh axes over which it is sharded
  std::string stage = {};                      // pipe[1] if it is placed on that sub-mesh (mesh.h)
  Shape padded_shape = {};       // if a dimension is padded (Uneven::pad): the shape with padding; otherwise empty
  std::string memory_kind = {};  // pinned_host for a state in host memory (OptimizerOptions); otherwise empty
  friend bool operator==(const PlacementRow&, const PlacementRow&) = default;
};

// Bytes of the arrays that are sharded over one mesh axis, and of the arrays that are replicated along it.
struct AxisTotals {
  MeshAxis axis;
  int64_t divided_bytes = 0;  // global, of the arrays sharded over the axis
  int64_t whole_bytes = 0;    // global, of all other arrays, which every device along the axis holds
  double copies = 1;          // bytes held along the axis / distinct bytes: 1 to the axis size
  friend bool operator==(const AxisTotals&, const AxisTotals&) = default;
};

enum class SortBy { tree, bytes, path };  // bytes: per device, largest first; path: numbers by value

// Options of a printed table.
struct PlacementTableOptions {
  size_t width = 0;               // maximum characters of a line: columns are dropped, paths shortened; 0: no limit
  bool fold = false;              // show repeated layers in one line, layers.{0..79}.mlp.up.kernel, with summed bytes
  std::optional<int> depth = {};  // group by this many names of the path; 1: model, optimizer. nullopt: no groups
  SortBy sort = SortBy::tree;
};

// Holds one row per array in the order of the tree, without absent arrays, and their sums.
//   std::cout << nn::placement_table(nn::named("model", model, "optimizer", optimizer));
//   std::cout << nn::placement_table(model).to_text({.width = 100, .fold = true});
class PlacementTable {
 public:
  explicit PlacementTable(std::vector<PlacementRow> rows) : rows_(std::move(rows)) {}

  const std::vector<PlacementRow>& rows() const& { return rows_; }
  std::vector<PlacementRow> rows() && { return std::move(rows_); }  // for (const auto& row : placement_table(m).rows())

  // Return sums over the arrays at `path` and below it ("model", "layers.2"); "" for all. A device has the arrays on
  // the complete mesh and the arrays of its stage; bytes_per_device is the value of the stage with the most bytes. It
  // does not count arrays in host memory; host_bytes_per_device counts only these.
  int64_t element_count(std::string_view path = "") const;
  int64_t bytes(std::string_view path = "") const;
  int64_t bytes_per_device(std::string_view path = "") const;
  int64_t host_bytes_per_device(std::string_view path = "") const;

  // Returns bytes on all devices / global bytes, over the arrays on meshes: 1 if nothing is replicated, the number of
  // devices if everything is. Returns 1 if there are no such arrays.
  double replication() const;
  // Returns the totals of every mesh axis of more than one device, in the order of the meshes.
  std::vector<AxisTotals> over_axes() const;

  // Returns aligned columns followed by the sums. All rows are shown unless the format limits them.
  std::string to_text(const PlacementTableOptions& format = {}) const;
  // Returns the same as a Markdown table. The width is not limited.
  std::string to_markdown(const PlacementTableOptions& format = {}) const;
  // Returns {"rows": [{"path", "axes" (null or names), "spec", "shape", "shard_shape", "dtype", "elements", "bytes",
  // "bytes_per_device", "replicas", "mesh": {axis: size}, "divided_over", "stage" (if on one), "padded_shape" (if
  // padded), "memory_kind" (if in host memory)}, ...], "arrays", "elements", "bytes", "bytes_per_device",
  // "replication", "over_axes": [{"axis", "size", "divided_bytes", "whole_bytes", "copies"}]}
  std::string to_json() const;

  friend bool operator==(const PlacementTable&, const PlacementTable&) = default;

 private:
  std::vector<PlacementRow> rows_;
};

// Returns the current placement of the arrays of a tree, or of named trees.
PlacementTable placement_table(const Leaves& leaves);
template <class Tree>
PlacementTable placement_table(const Tree& tree) {
  return placement_table(leaves(tree));
}

// Previews filter_shard(tree, mesh_rules). Nothing is placed or allocated, so the preview also works for a model that
// fits on no device. The result equals the table after placing. Errors: those of filter_shard.
PlacementTable placement_table(const Leaves& leaves, const MeshRules& mesh_rules);
template <class Tree>
PlacementTable placement_table(const Tree& tree, const MeshRules& mesh_rules) {
  return placement_table(leaves(tree), mesh_rules);
}
// Diagnoses a common mistake: several trees without names.
template <class Tree, class Other, class... Rest>
requires(!std::convertible_to<Other, MeshRules>) PlacementTable
    placement_table(const Tree&, const Other&, const Rest&...) {
  static_assert(tessera::detail::dependent_false<Tree>,
                "tessera: placement_table takes one tree, or named trees: placement_table(named(\"model\", model, "
                "\"optimizer\", optimizer)).");
  return placement_table(Leaves());
}

// Parses the text that to_json() wrote. Error (invalid_file): any other text.
PlacementTable parse_placement_table(std::string_view json);

}  // namespace tessera::nn
