// Collectives inside shard_map, with the names, arguments and gradients of jax.lax.
#pragma once

#include <concepts>
#include <functional>
#include <source_location>
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
// axis twice (duplicate_axis); a captured array that lies apart over a manual axis (vma). All are differentiable, and
// stand in the ledger with the line they are written on.

// The sum, largest, smallest or mean of the devices' values; invariant. Backward, the sum is pvary, the mean the same
// divided by their number; the gradient of an extremum goes to the devices that hold it, in equal parts.
Array psum(Operand x, const SpecEntry& axes);
Array pmean(Operand x, const SpecEntry& axes);
Array pmax(Operand x, const SpecEntry& axes);
Array pmin(Operand x, const SpecEntry& axes);

// How many devices lie along the axes.
int64_t axis_size(const SpecEntry& axes);
// Of a number: psum(1, "x") is the axis's size.
template <class T>
requires std::integral<T> || std::floating_point<T> T psum(T x, const SpecEntry& axes) {
  return x * static_cast<T>(axis_size(axes));
}
// This device's number along the axes, an int32 scalar that varies.
Array axis_index(const SpecEntry& axes);

enum class Vma : uint8_t { varying, invarying };

// All devices' values, stacked along a new dim `axis`, or tiled: joined along that dim. All devices get the same, but
// the result counts as varying, whose backward is psum_scatter, unless it is asked for as invarying: then it may leave
// shard_map as replicated, and each device takes its part of the gradient.
struct AllGatherOptions {
  int axis = 0;
  bool tiled = false;
  Vma to = Vma::varying;
};
Array all_gather(Operand x, const SpecEntry& axes, const AllGatherOptions& options = {});

// Each device's part of the sum: along dim scatter_dimension, which must have as many places as there are devices
// (size_mismatch) and is gone afterwards; tiled: it is cut into as many parts (uneven). Backward: all_gather.
struct PsumScatterOptions {
  int scatter_dimension = 0;
  bool tiled = false;
};
Array psum_scatter(Operand x, const SpecEntry& axes, const PsumScatterOptions& options = {});

// (from, to) says who sends to whom, by their number along the axes; a device that nobody sends to gets zeros.
// Backward: the other way. Errors: a number outside the axis (bad_argument), one that sends or gets twice
// (duplicate_pair).
Array ppermute(Operand x, const SpecEntry& axes, const std::vector<std::pair<int, int>>& pairs);

// Dim split_axis is cut into as many parts as there are devices, one sent to each; what arrives is joined along
// concat_axis. Untiled, split_axis has as many places as there are devices (size_mismatch) and is gone afterwards, and
// concat_axis is a new dim. Backward: all_to_all with the dims exchanged.
struct AllToAllOptions {
  bool tiled = false;
};
Array all_to_all(Operand x, const SpecEntry& axes, int split_axis, int concat_axis,
                 const AllToAllOptions& options = {});

// x as a value that varies along the axes as well; nothing is communicated. Backward: psum.
Array pvary(Operand x, const SpecEntry& axes);
// The same as JAX spells it now. Error (vma): to invarying, which only a collective can make of a varying value.
Array pcast(Operand x, const SpecEntry& axes, Vma to = Vma::varying);

// A key of its own for every device along some axes: jax.random.fold_in(key, axis_index(axes)). It is folded in and
// split like a Key; per_device(key, draw) is what `draw` makes of each device's key, as one value that varies:
//   const Array noise = per_device(fold_in_axis(key, "x"), [](const Key& k) { return normal(k, {4}); });
struct DeviceKeys {
  std::vector<std::string> axes;  // as given
  std::vector<Key> keys;          // by the device's number along them
};
DeviceKeys fold_in_axis(const Key& key, const SpecEntry& axes);
DeviceKeys fold_in(const DeviceKeys& keys, uint32_t data);
std::vector<DeviceKeys> split(const DeviceKeys& keys, int64_t n);
// Error (shape_mismatch): results of `draw` that differ in shape or element type.
Array per_device(const DeviceKeys& keys, const std::function<Array(const Key&)>& draw);

}  // namespace tessera
