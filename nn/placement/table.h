// placement_table: where every array of a tree lies and what it costs each device, before or after it is placed.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nn/tree/tree.h"
#include "sharding/placement/layout.h"
#include "sharding/placement/mesh.h"

namespace tessera::nn {

// One array of a tree.
struct PlacementRow {
  std::string path;                              // layers.2.mlp.up.kernel
  std::optional<std::vector<std::string>> axes;  // its dims' names: embed, none, @model; nothing for a bare array
  std::string spec;                              // as JAX prints it, P(None, 'model'); "uncommitted" if on no mesh
  Shape shape;                                   // global
  Shape shard_shape;                             // of one device
  DType dtype = float32;
  int64_t elements = 0;             // global
  int64_t bytes = 0;                // global
  int64_t bytes_per_device = 0;     // of one shard, as if every device had its own, however few copies are stored here
  int64_t replicas = 1;             // devices that hold the same block; 1: nobody else has it
  std::vector<MeshAxis> mesh = {};  // nothing if on no mesh
  std::vector<std::string> divided_over = {};  // the mesh axes that cut it
  friend bool operator==(const PlacementRow&, const PlacementRow&) = default;
};

// What lies over one mesh axis.
struct AxisTotals {
  MeshAxis axis;
  int64_t divided_bytes = 0;  // global, of the arrays that the axis cuts
  int64_t whole_bytes = 0;    // of the others: each device along the axis has all of what its neighbours have
  double copies = 1;  // bytes along the axis, by those of them that differ: 1 if all is divided, else up to its size
  friend bool operator==(const AxisTotals&, const AxisTotals&) = default;
};

enum class SortBy { tree, bytes, path };  // bytes: those of a device, the most first; path: numbers by their value

// How a table is printed.
struct TableFormat {
  size_t width = 0;               // characters of a line: columns are left out and paths elided; 0: as it comes
  bool fold = false;              // repeated layers in one line, layers.{0..79}.mlp.up.kernel, whose bytes are added up
  std::optional<int> depth = {};  // grouped by module: this many names of a path; 1: model, optimizer. None: each array
  SortBy sort = SortBy::tree;
};

// The rows in the order of the tree, absent arrays left out, and their sums.
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
  int64_t elements(std::string_view path = "") const;
  int64_t bytes(std::string_view path = "") const;
  int64_t bytes_per_device(std::string_view path = "") const;

  // Bytes that all devices hold, by the global ones: 1 if nothing is there twice, the number of devices if all of it is
  // everywhere. Of arrays on meshes; 1 without any.
  double replication() const;
  // Every axis of more than one device, in the order of the meshes.
  std::vector<AxisTotals> over_axes() const;

  // Aligned columns, and the sums below; every row, however many they are, unless the format says otherwise.
  std::string to_text(const TableFormat& format = {}) const;
  // The same as a Markdown table, of any width.
  std::string to_markdown(const TableFormat& format = {}) const;
  // {"rows": [{"path", "axes" (null or names), "spec", "shape", "shard_shape", "dtype", "elements", "bytes",
  // "bytes_per_device", "replicas", "mesh": {axis: size}, "divided_over"}, ...], "arrays", "elements", "bytes",
  // "bytes_per_device", "replication", "over_axes": [{"axis", "size", "divided_bytes", "whole_bytes", "copies"}]}
  std::string to_json() const;

  friend bool operator==(const PlacementTable&, const PlacementTable&) = default;

 private:
  std::vector<PlacementRow> rows_;
};

// Prints to_text().
std::ostream& operator<<(std::ostream& out, const PlacementTable& table);

// Where the arrays lie now: of a tree, or of named trees.
PlacementTable placement_table(const Leaves& leaves);
template <class Tree>
PlacementTable placement_table(const Tree& tree) {
  return placement_table(leaves(tree));
}

// Where filter_shard(tree, layout) would place them. Nothing is placed and nothing allocated, so that the table of
// a model that fits no device can be read before it is made. It equals the table after placing.
// Errors: as filter_shard's.
PlacementTable placement_table(const Leaves& leaves, const Layout& layout);
template <class Tree>
PlacementTable placement_table(const Tree& tree, const Layout& layout) {
  return placement_table(leaves(tree), layout);
}

// The table that to_json() wrote. Error (bad_file): other text.
PlacementTable parse_placement_table(std::string_view json);

}  // namespace tessera::nn
