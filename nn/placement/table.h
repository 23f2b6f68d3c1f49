// placement_table: how every array of a tree is placed and what it costs each device, before or after placing.
#pragma once

#include <concepts>
#include <cstdint>
#include <iosfwd>
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
  std::optional<std::vector<std::string>> axes;  // names of its dims: embed, none, @model; nullopt for a bare array
  std::string spec;                              // as JAX prints it, P(None, 'model'); "uncommitted" if on no mesh
  Shape shape;                                   // global
  Shape shard_shape;                             // of one device, with its padding
  DType dtype = float32;
  int64_t num_elements = 0;                    // global
  int64_t bytes = 0;                           // global
  int64_t bytes_per_device = 0;                // of one shard, as if every device stored a copy of its own
  int64_t num_replicas = 1;                    // devices that hold the same shard; 1: not replicated
  std::vector<MeshAxis> mesh = {};             // empty if on no mesh
  std::vector<std::string> divided_over = {};  // the mesh axes that divide it
  std::string stage = {};                      // pipe[1] if it is placed on that sub-mesh (sub_mesh.h)
  Shape padded_shape = {};  // where a dim is padded (Uneven::pad): the shape with padding; else empty
  friend bool operator==(const PlacementRow&, const PlacementRow&) = default;
};

// How the arrays on one mesh axis are divided or replicated along it.
struct AxisTotals {
  MeshAxis axis;
  int64_t divided_bytes = 0;  // global, of the arrays that the axis divides
  int64_t whole_bytes = 0;    // global, of the others, which every device along the axis holds
  double copies = 1;  // bytes held along the axis / distinct bytes: 1 if all is divided, else up to the axis size
  friend bool operator==(const AxisTotals&, const AxisTotals&) = default;
};

enum class SortBy { tree, bytes, path };  // bytes: per device, largest first; path: numbers by value

// How a table is printed.
struct PlacementTableOptions {
  size_t width = 0;               // most characters of a line: columns are dropped, paths shortened; 0: no limit
  bool fold = false;              // repeated layers in one line, layers.{0..79}.mlp.up.kernel, with summed bytes
  std::optional<int> depth = {};  // group by this many names of the path; 1: model, optimizer. nullopt: no groups
  SortBy sort = SortBy::tree;
};

// One row per array in the order of the tree, without absent arrays, and their sums.
//   std::cout << nn::placement_table(nn::named("model", model, "optimizer", optimizer));
//   std::cout << nn::placement_table(model).to_text({.width = 100, .fold = true});
class PlacementTable {
 public:
  explicit PlacementTable(std::vector<PlacementRow> rows);
  PlacementTable(const PlacementTable&);
  PlacementTable(PlacementTable&&) noexcept;
  PlacementTable& operator=(const PlacementTable&);
  PlacementTable& operator=(PlacementTable&&) noexcept;
  ~PlacementTable();

  const std::vector<PlacementRow>& rows() const& { return rows_; }
  std::vector<PlacementRow> rows() && { return std::move(rows_); }  // for (const auto& row : placement_table(m).rows())

  // Sums over the arrays at `path` and below it ("model", "layers.2"); "" for all. Bytes are bytes, not kilobytes.
  // A device has the arrays on the whole mesh and those of its stage: bytes_per_device counts the fullest stage.
  int64_t element_count(std::string_view path = "") const;
  int64_t bytes(std::string_view path = "") const;
  int64_t bytes_per_device(std::string_view path = "") const;

  // Bytes on all devices / global bytes, over the arrays on meshes: 1 if nothing is replicated, the number of devices
  // if everything is. 1 if there are no such arrays.
  double replication() const;
  // The totals of every mesh axis of more than one device, in the order of the meshes.
  std::vector<AxisTotals> over_axes() const;

  // Aligned columns with the sums below; all rows, unless the format says otherwise.
  std::string to_text(const PlacementTableOptions& format = {}) const;
  // The same as a Markdown table of any width.
  std::string to_markdown(const PlacementTableOptions& format = {}) const;
  // {"rows": [{"path", "axes" (null or names), "spec", "shape", "shard_shape", "dtype", "elements", "bytes",
  // "bytes_per_device", "replicas", "mesh": {axis: size}, "divided_over", "stage" (if on one), "padded_shape" (if
  // padded)}, ...], "arrays", "elements", "bytes", "bytes_per_device", "replication", "over_axes": [{"axis", "size",
  // "divided_bytes", "whole_bytes", "copies"}]}
  std::string to_json() const;

  friend bool operator==(const PlacementTable&, const PlacementTable&) = default;

 private:
  std::vector<PlacementRow> rows_;
};

// Prints to_text().
std::ostream& operator<<(std::ostream& out, const PlacementTable& table);

// The current placement of the arrays of a tree, or of named trees.
PlacementTable placement_table(const Leaves& leaves);
template <class Tree>
PlacementTable placement_table(const Tree& tree) {
  return placement_table(leaves(tree));
}

// Previews filter_shard(tree, mesh_rules). Nothing is placed or allocated, so this also works for a
// model that fits on no device. The result equals the table after placing. Errors: those of filter_shard.
PlacementTable placement_table(const Leaves& leaves, const MeshRules& mesh_rules);
template <class Tree>
PlacementTable placement_table(const Tree& tree, const MeshRules& mesh_rules) {
  return placement_table(leaves(tree), mesh_rules);
}
// A mistake: several trees without names.
template <class Tree, class Other, class... Rest>
  requires(!std::convertible_to<Other, MeshRules>)
PlacementTable placement_table(const Tree&, const Other&, const Rest&...) {
    static_assert(tessera::detail::dependent_false<Tree>,
                  "tessera: placement_table takes one tree, or named ones: "
                  "placement_table(named(\"model\", model, \"optimizer\", optimizer)).");
    return placement_table(Leaves());
}

// Reads what to_json() wrote. Error (invalid_file): any other text.
PlacementTable parse_placement_table(std::string_view json);

}  // namespace tessera::nn
