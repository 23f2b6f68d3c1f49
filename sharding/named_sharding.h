// NamedSharding: a mesh and a spec, so that every device knows its block of any array.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sharding/mesh.h"
#include "sharding/partition_spec.h"

namespace tessera {

using Shape = std::vector<int64_t>;

// "(8, 4)", "()" for a scalar.
std::string to_string(const Shape& shape);

namespace detail {
struct ShardingImpl;
}

// [start, stop) of every dim.
using IndexRanges = std::vector<std::pair<int64_t, int64_t>>;

// A handle to an interned pair, so equality is a pointer compare.
class NamedSharding {
 public:
  // Errors: a mesh axis that the mesh does not have (unknown_axis), or one used twice (duplicate_axis).
  NamedSharding(Mesh mesh, PartitionSpec spec);

  Mesh mesh() const;
  const PartitionSpec& spec() const;

  // The shape of one device's block. Errors: a spec longer than the shape (rank_mismatch), a dim that its mesh
  // axes do not divide (uneven).
  Shape shard_shape(const Shape& shape) const;

  // The block of every device, in mesh order.
  std::vector<IndexRanges> devices_indices_map(const Shape& shape) const;

  // For every device, in mesh order, how many devices before it hold the same block.
  std::vector<int> replica_ids(const Shape& shape) const;

  bool is_fully_replicated() const;

  // The same blocks on the same devices, for arrays of `ndim` dims.
  bool is_equivalent_to(const NamedSharding& other, int ndim) const;

  friend bool operator==(const NamedSharding& a, const NamedSharding& b) { return a.impl_ == b.impl_; }
  const detail::ShardingImpl* impl() const { return impl_; }

 private:
  const detail::ShardingImpl* impl_;
};

}  // namespace tessera
