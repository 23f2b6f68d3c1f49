// Collectives inside shard_map, with the names, arguments and gradients of jax.lax.
#pragma once

#include <concepts>
#include <functional>
#include <utility>
#include <vector>

#include "sharding/operations/operand.h"
#include "sharding/placement/partition_spec.h"
#include "sharding/random/key.h"

namespace tessera {

// Inside shard_map a value varies along the mesh axes over which the devices may hold different things, and is
// invariant along the others: float32[4]{V:x}. An operation on a varying and an invariant operand uses the invariant
// one on every device, so its gradient is summed over them. A collective takes one axis, or several, major to minor:
//   psum(x, "x")    all_gather(x, {"x", "y"}, {.tiled = true})
// An operand that does not vary along the axes is used as the same value on every device.
// Errors of all: outside shard_map, or along an axis that is not in the mesh or not manual there (unknown_axis); an
// axis twice (duplicate_axis); a captured array that lies apart over a manual axis (varying_axis). All are
// differentiable, and stand in the ledger with the line they are written on.

// The sum, mean, maximum or minimum of the devices' values; invariant. The backward of psum is pvary, that of pmean is
// pvary divided by the number of devices; that of pmax and pmin gives equal parts to the devices with the extremum.
Array psum(Operand x, const SpecEntry& mesh_axes);
Array pmean(Operand x, const SpecEntry& mesh_axes);
Array pmax(Operand x, const SpecEntry& mesh_axes);
Array pmin(Operand x, const SpecEntry& mesh_axes);

// How many devices lie along the axes.
int64_t axis_size(const SpecEntry& mesh_axes);
// psum of a number: psum(1, "x") is the size of the mesh axis.
template <class T>
  requires std::integral<T> || std::floating_point<T>
T psum(T x, const SpecEntry& mesh_axes) {
  return x * static_cast<T>(axis_size(mesh_axes));
}
// This device's number along the axes, an int32 scalar that varies.
Array axis_index(const SpecEntry& mesh_axes);

enum class Vma : uint8_t { varying, invarying };

// All devices' values, stacked along a new dimension `dim`; if tiled, joined along that dim. All devices get the same,
// but by default the result counts as varying; the backward is psum_scatter. With .to = Vma::invarying the result may
// leave shard_map as replicated, and in the backward each device takes its part of the gradient.
struct AllGatherOptions {
  int dim = 0;
  bool tiled = false;
  Vma to = Vma::varying;
};
Array all_gather(Operand x, const SpecEntry& mesh_axes, const AllGatherOptions& options = {});

// Each device gets its part of the sum, cut along `scatter_dim`. Untiled, the size of that dim must be the
// number of devices (size_mismatch), and the dim is removed; tiled, the dim is split into that many parts
// (not_divisible). Backward: all_gather.
struct PsumScatterOptions {
  int scatter_dim = 0;
  bool tiled = false;
};
Array psum_scatter(Operand x, const SpecEntry& mesh_axes, const PsumScatterOptions& options = {});

// `pairs` are (from, to), the devices' numbers along the axes; a device to which none sends gets zeros. Backward: the
// reverse pairs. Errors: a number outside the axis (invalid_argument), a device that sends or receives twice
// (duplicate_pair).
Array ppermute(Operand x, const SpecEntry& mesh_axes, const std::vector<std::pair<int, int>>& pairs);

// Splits `split_dim` into as many blocks as there are devices, and sends one to each. The received blocks are joined
// along `concat_dim`. Untiled, the size of `split_dim` must be the number of devices (size_mismatch); that dim is
// removed, and `concat_dim` is a new dim. Backward: all_to_all with the dims exchanged.
struct AllToAllOptions {
  bool tiled = false;
};
Array all_to_all(Operand x, const SpecEntry& mesh_axes, int split_dim, int concat_dim,
                 const AllToAllOptions& options = {});

// x, equal along these mesh axes, as a value that varies along them; nothing is communicated. Backward: psum. Error
// (varying_axis): x varies along one of them already.
Array pvary(Operand x, const SpecEntry& mesh_axes);
// pvary under JAX's newer name. Error (varying_axis): `to` invarying, since only a collective makes a varying value
// invariant.
Array pcast(Operand x, const SpecEntry& mesh_axes, Vma to = Vma::varying);

// A different key for every device along some mesh axes: jax.random.fold_in(key, axis_index(mesh_axes)). fold_in and
// split work as on a Key; per_device(keys, draw) calls `draw` with each device's key and gives one value that varies:
//   const Array noise = per_device(fold_in_axis(key, "x"), [](const Key& k) { return normal(k, {4}); });
struct DeviceKeys {
  std::vector<std::string> mesh_axes;  // as given
  std::vector<Key> keys;               // by the device's number along them
};
DeviceKeys fold_in_axis(const Key& key, const SpecEntry& mesh_axes);
DeviceKeys fold_in(const DeviceKeys& keys, uint32_t data);
std::vector<DeviceKeys> split(const DeviceKeys& keys, int64_t n);
// Error (shape_mismatch): results of `draw` that differ in shape or element type.
Array per_device(const DeviceKeys& keys, const std::function<Array(const Key&)>& draw);

}  // namespace tessera
