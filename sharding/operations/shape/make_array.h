// Arrays made from per-device data: from a function of the block, from this process's rows, or from shards.
#pragma once

#include <functional>
#include <vector>

#include "sharding/array/array.h"

namespace tessera {

// A process without devices of the mesh passes the same arguments as the mesh's first process, and stores nothing.

// Returns an array of this shape whose blocks are made by `make_block`. It is called once for each distinct block of
// this process's devices, in mesh order, with the block's ranges in the array. Nothing larger than a block is ever
// allocated:
//   make_array_from_callback({n, 4}, sharding, [&](const IndexRanges& block) { return rows(file, block[0]); });
// A block is an array that is not placed; all blocks have one element type.
//
// Errors
//   those of NamedSharding
//   shape_mismatch: a block whose shape does not match its ranges
//   dtype_mismatch: blocks of several element types
//   missing_array: an absent block
//   device_mismatch: a block that is placed on a mesh
//   invalid_argument: a spec with unreduced axes, since ranges do not determine a device's term of the partial sum
Array make_array_from_callback(const Shape& shape, const NamedSharding& sharding,
                               const std::function<Array(const IndexRanges&)>& make_block);

// Returns an array of which this process passes the elements `local`. If one process has all devices of the mesh,
// `local` is the complete array. Otherwise `local` has, along every dimension, the rows that the blocks of this
// process's devices cover, in order. All processes call it; processes with the same rows pass the same values. `shape`,
// if given, is the global shape. A size 0 in `shape` is not a wildcard: it must be 0 in `local` too.
//
// Errors
//   those of NamedSharding
//   shape_mismatch: the sizes of `local` do not match this process's rows of `shape`
//   invalid_argument: a process whose rows are not contiguous
//   not_divisible: a dimension that may be padded, if `shape` is not given and this process has only some of its rows
Array make_array_from_process_local_data(const NamedSharding& sharding, const Array& local);
Array make_array_from_process_local_data(const NamedSharding& sharding, const Array& local, const Shape& shape);

// shape_from_process_local returns the global shape for the shape of this process's `local`. process_local_part returns
// the ranges of this process's rows in a global shape.
Shape shape_from_process_local(const NamedSharding& sharding, const Shape& local);
IndexRanges process_local_part(const NamedSharding& sharding, const Shape& shape);

// Returns an array made from one shard per device of this process, in mesh order: the inverse of addressable_shards
// (jax.make_array_from_single_device_arrays). A shard is an array that is not placed, or is placed on its device only.
// If the spec has unreduced axes, a shard is its device's term of the partial sum.
//
// Errors
//   shape_mismatch: a different number of shards than devices, or a shard whose shape does not match its block
//   dtype_mismatch: shards of several element types
//   device_mismatch: a shard on another device
//   invalid_argument: replicas of a block that are not equal bit by bit
Array make_array_from_shards(const Shape& shape, const NamedSharding& sharding, const std::vector<Array>& shards);

}  // namespace tessera
