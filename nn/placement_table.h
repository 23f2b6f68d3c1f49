// placement_table: where every array of a tree lies and what it costs each device, before or after it is placed.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nn/tree.h"
#include "sharding/layout.h"

namespace tessera::nn {

// One array of a tree.
struct PlacementRow {
  std::string path;                              // layers.2.mlp.up.kernel
  std::optional<std::vector<std::string>> axes;  // its dims' names: embed, none, @model; nothing for a bare array
  std::string spec;                              // as JAX prints it, P(None, 'model'); "uncommitted" if on no mesh
  Shape shape;                                   // global
  Shape shard_shape;                             // of one device
  DType dtype = float32;
  int64_t elements = 0;          // global
  int64_t bytes = 0;             // global
  int64_t bytes_per_device = 0;  // of one shard, as if every device had its own, however few copies are stored here
  int64_t replicas = 1;          // devices that hold the same block; 1: nobody else has it
  friend bool operator==(const PlacementRow&, const PlacementRow&) = default;
};

// The rows in the order of the tree, absent arrays left out, and their sums.
//   std::cout << nn::placement_table(nn::named("model", model, "optimizer", optimizer));
class PlacementTable {
 public:
  explicit PlacementTable(std::vector<PlacementRow> rows) : rows_(std::move(rows)) {}

  const std::vector<PlacementRow>& rows() const { return rows_; }

  // Sums over the arrays at `path` and below it ("model", "layers.2"); "" for all. Bytes are bytes, not kilobytes.
  int64_t elements(std::string_view path = "") const;
  int64_t bytes(std::string_view path = "") const;
  int64_t bytes_per_device(std::string_view path = "") const;

  // Aligned columns, and the sums below; every row, however many they are.
  std::string to_text() const;
  // The same as a Markdown table.
  std::string to_markdown() const;
  // {"rows": [{"path", "axes" (null or names), "spec", "shape", "shard_shape", "dtype", "elements", "bytes",
  // "bytes_per_device", "replicas"}, ...], "arrays", "elements", "bytes", "bytes_per_device"}
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

}  // namespace tessera::nn
