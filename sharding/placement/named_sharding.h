// NamedSharding: a mesh and a spec, which together assign a block of any array to each device.
#pragma once

#include <concepts>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "sharding/base/error.h"
#include "sharding/placement/dtype.h"
#include "sharding/placement/mesh.h"
#include "sharding/placement/partition_spec.h"
#include "sharding/placement/shape.h"

namespace tessera {

namespace detail {
struct ShardingImpl;
}

// A handle to an interned pair of a mesh and a spec, so equality compares pointers. Two shardings or specs that differ
// only in trailing nones are equal.
class NamedSharding {
 public:
  // Errors
  //   unknown_axis: a mesh axis that the mesh does not have
  //   duplicate_axis: a mesh axis used twice
  //   invalid_argument: an empty mesh
  NamedSharding(Mesh mesh, PartitionSpec spec);
  template <class Spec>
  requires(!std::convertible_to<Spec, PartitionSpec>) NamedSharding(const Mesh&, const Spec&) {
    static_assert(detail::dependent_false<Spec>,
                  "tessera: a NamedSharding needs a mesh and a spec: NamedSharding(mesh, P{\"data\"}).");
  }

  Mesh mesh() const;
  const PartitionSpec& spec() const;  // without trailing nones

  // Returns the shape of one device's block; for a padded dimension it includes the padding.
  // Errors, checked in this order
  //   unconstrained: a spec with an unconstrained dimension
  //   rank_mismatch: a spec with more entries than the shape has dimensions, counting trailing nones
  //   not_divisible: a dimension that its mesh axes do not divide, without Uneven::pad
  Shape shard_shape(const Shape& shape) const;

  // Returns the bytes of one device's block.
  int64_t shard_bytes(const Shape& shape, DType dtype) const;

  // Returns the block of every device, in mesh order, without padding: the last blocks of a padded dimension are
  // shorter, or empty.
  std::vector<IndexRanges> devices_indices_map(const Shape& shape) const;

  // Returns for every device, in mesh order, the number of devices before it with the same block. Two empty blocks of a
  // padded dimension are not the same.
  std::vector<int> replica_ids(const Shape& shape) const;

  // Returns the number of distinct blocks.
  int distinct_shard_count(const Shape& shape) const;

  // Returns true if every device stores the complete array.
  bool is_fully_replicated() const;

  // Returns true if both shardings place the same blocks on the same devices, for arrays of `ndim` dimensions. Meshes
  // with different device orders are not equivalent, as in JAX.
  bool is_equivalent_to(const NamedSharding& other, int ndim) const;

  // Compares mesh and spec including trailing nones, as == in JAX.
  bool is_spelled_like(const NamedSharding& other) const { return spelled_ == other.spelled_; }

  // Returns "NamedSharding(mesh=Mesh('data': 4, 'model': 2), spec=P('data'))", or "SingleDeviceSharding(device=3)".
  std::string to_string() const;
  friend std::ostream& operator<<(std::ostream& out, const NamedSharding& sharding);

  friend bool operator==(const NamedSharding& a, const NamedSharding& b) { return a.impl_ == b.impl_; }
  const detail::ShardingImpl* impl() const { return impl_; }
  const PartitionSpec& spelled_spec() const;  // with the trailing nones that were given

 private:
  const detail::ShardingImpl* impl_;
  const detail::ShardingImpl* spelled_;
};

// The sharding of an array on one device only: a mesh of that device, without axes.
struct SingleDeviceSharding {
  int device = 0;
  operator NamedSharding() const;  // Error (device_mismatch) if there is no such device
};

namespace detail {

struct Type;
const Type* placed_type(DType dtype, const Shape& shape, const NamedSharding& sharding, const char* verb = "sharding");
NamedSharding sharding_of(const Type* type);

}  // namespace detail

}  // namespace tessera
