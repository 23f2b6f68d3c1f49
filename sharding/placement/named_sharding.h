// NamedSharding: a mesh and a spec, which together give each device its block of any array.
#pragma once

#include <concepts>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "sharding/base/dependent_false.h"
#include "sharding/placement/dtype.h"
#include "sharding/placement/mesh.h"
#include "sharding/placement/partition_spec.h"
#include "sharding/placement/shape.h"

namespace tessera {

namespace detail {
struct ShardingImpl;
}

// A handle to an interned pair, so equality is a pointer compare. Shardings, like specs, are equal if they differ in
// trailing nones only.
class NamedSharding {
 public:
  // Errors: a mesh axis that the mesh does not have (unknown_axis), or one used twice (duplicate_axis).
  NamedSharding(Mesh mesh, PartitionSpec spec);
  template <class Spec>
  requires(!std::convertible_to<Spec, PartitionSpec>) NamedSharding(const Mesh&, const Spec&) {
    static_assert(detail::dependent_false<Spec>,
                  "tessera: a NamedSharding has a mesh and a spec: NamedSharding(mesh, P{\"data\"}).");
  }

  Mesh mesh() const;
  const PartitionSpec& spec() const;  // without trailing nones

  // The shape of one device's block, of a padded dim the padding included. Errors, in this order: a spec that leaves a
  // dim open (unconstrained), one that is longer than the shape, trailing nones counted (rank_mismatch), a dim that its
  // mesh axes do not divide and whose entry does not say Uneven::pad (not_divisible).
  Shape shard_shape(const Shape& shape) const;

  // The memory of one device's block.
  int64_t shard_bytes(const Shape& shape, DType dtype) const;

  // The block of every device, in mesh order, without padding: of a padded dim the last are shorter, or empty.
  std::vector<IndexRanges> devices_indices_map(const Shape& shape) const;

  // For every device, in mesh order, how many devices before it hold the same block. Two empty blocks of a padded dim
  // are not the same.
  std::vector<int> replica_ids(const Shape& shape) const;

  // How many different blocks there are.
  int distinct_shard_count(const Shape& shape) const;

  // Every device holds the whole value.
  bool is_fully_replicated() const;

  // The same blocks on the same devices, for arrays of `ndim` dims; meshes that list their devices in another order are
  // not equivalent, as in JAX.
  bool is_equivalent_to(const NamedSharding& other, int ndim) const;

  // The same mesh and the same spec, trailing nones counted: what == compares in JAX.
  bool is_spelled_like(const NamedSharding& other) const { return spelled_ == other.spelled_; }

  // NamedSharding(mesh=Mesh('data': 4, 'model': 2), spec=P('data')), or SingleDeviceSharding(device=3).
  std::string to_string() const;
  friend std::ostream& operator<<(std::ostream& out, const NamedSharding& sharding);

  friend bool operator==(const NamedSharding& a, const NamedSharding& b) { return a.impl_ == b.impl_; }
  const detail::ShardingImpl* impl() const { return impl_; }
  const PartitionSpec& spelled_spec() const;  // with the trailing nones that were given

 private:
  const detail::ShardingImpl* impl_;
  const detail::ShardingImpl* spelled_;
};

// The placement of an array that lies on one device alone: a mesh of that device, without axes.
struct SingleDeviceSharding {
  int device = 0;
  operator NamedSharding() const;  // Error (device_mismatch) where there is no such device
};

namespace detail {

struct Type;
const Type* placed_type(DType dtype, const Shape& shape, const NamedSharding& sharding, const char* verb = "sharding");
NamedSharding sharding_of(const Type* type);

}  // namespace detail

}  // namespace tessera
