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

// Inside shard_map, a value varies along the mesh axes over which devices may have different values, and is invariant
// along the others: float32[4]{V:x}. If an operation has a varying and an invariant operand, every device uses the
// invariant one, whose gradient is therefore summed over the devices. A collective takes one axis, or several in order
// from major to minor:
//   psum(x, "x")    all_gather(x, {"x", "y"}, {.tiled = true})
// An operand that does not vary along the axes is used as the same value on every device. All collectives are
// differentiable, and the ledger records them with their source line.
// Errors of every collective
//   unknown_axis: a call outside shard_map; an axis that is not in the mesh or not manual there
//   duplicate_axis: an axis twice
//   varying_axis: a captured array that is sharded over a manual axis

// Return the sum, mean, maximum or minimum of the devices' values; the result is invariant. Backward: pvary for psum;
// pvary divided by the number of devices for pmean. For pmax and pmin, the devices with the extremum get equal
// fractions.
Array psum(Operand x, const SpecEntry& mesh_axes);
Array pmean(Operand x, const SpecEntry& mesh_axes);
Array pmax(Operand x, const SpecEntry& mesh_axes);
Array pmin(Operand x, const SpecEntry& mesh_axes);

// Returns the number of devices along the axes.
int64_t axis_size(const SpecEntry& mesh_axes);
// Returns psum of a number: psum(1, "x") is the size of the mesh axis.
template <class T>
  requires std::integral<T> || std::floating_point<T>
T psum(T x, const SpecEntry& mesh_axes) {
  return x * static_cast<T>(axis_size(mesh_axes));
}
// Returns this device's index along the axes, a varying int32 scalar.
Array axis_index(const SpecEntry& mesh_axes);

enum class Vma : uint8_t { varying, invarying };

// Returns the values of all devices, stacked along a new dimension `dim`; if tiled, concatenated along that dimension.
// All devices get the same value, but by default the type of the result is varying, and its backward is psum_scatter.
// With .to = Vma::invarying, the result may leave shard_map as replicated, and in the backward pass each device takes
// its block of the gradient.
struct AllGatherOptions {
  int dim = 0;
  bool tiled = false;
  Vma to = Vma::varying;
};
Array all_gather(Operand x, const SpecEntry& mesh_axes, const AllGatherOptions& options = {});

// Returns this device's block of the sum, split along `scatter_dim`. Untiled, the size of that dimension must be the
// number of devices (size_mismatch), and the dimension is removed. Tiled, the dimension is split into that many blocks
// (not_divisible). Backward: all_gather.
struct PsumScatterOptions {
  int scatter_dim = 0;
  bool tiled = false;
};
Array psum_scatter(Operand x, const SpecEntry& mesh_axes, const PsumScatterOptions& options = {});

// Sends x between devices. `pairs` are (from, to), the devices' indices along the axes; a device that receives nothing
// gets zeros. Backward: the reversed pairs.
// Errors
//   invalid_argument: an index outside the axis
//   duplicate_pair: a device that sends or receives twice
Array ppermute(Operand x, const SpecEntry& mesh_axes, const std::vector<std::pair<int, int>>& pairs);

// Splits `split_dim` into one block per device, sends one to each device, and concatenates the received blocks along
// `concat_dim`. Untiled, the size of `split_dim` must be the number of devices (size_mismatch); that dimension is
// removed, and `concat_dim` is a new dimension. Tiled, the number of devices must divide it (not_divisible). Backward:
// all_to_all with the dimensions exchanged.
struct AllToAllOptions {
  bool tiled = false;
};
Array all_to_all(Operand x, const SpecEntry& mesh_axes, int split_dim, int concat_dim,
                 const AllToAllOptions& options = {});

// Returns x, which is equal along these mesh axes, as a value that varies along them. Nothing is communicated.
// Backward: psum. Throws varying_axis if x already varies along one of them.
Array pvary(Operand x, const SpecEntry& mesh_axes);
// Same as pvary, under JAX's newer name. Throws varying_axis if `to` is invarying, because only a collective makes a
// varying value invariant.
Array pcast(Operand x, const SpecEntry& mesh_axes, Vma to = Vma::varying);

// A different key for each device along some mesh axes: jax.random.fold_in(key, axis_index(mesh_axes)). fold_in and
// split work as on a Key. per_device(keys, draw) calls `draw` with each device's key and returns one varying value:
//   const Array noise = per_device(fold_in_axis(key, "x"), [](const Key& k) { return normal(k, {4}); });
struct DeviceKeys {
  std::vector<std::string> mesh_axes;  // as given
  std::vector<Key> keys;               // by the device's index along them
};
DeviceKeys fold_in_axis(const Key& key, const SpecEntry& mesh_axes);
DeviceKeys fold_in(const DeviceKeys& keys, uint32_t data);
std::vector<DeviceKeys> split(const DeviceKeys& keys, int64_t n);
// Throws shape_mismatch if results of `draw` differ in shape or element type.
Array per_device(const DeviceKeys& keys, const std::function<Array(const Key&)>& draw);

}  // namespace tessera
