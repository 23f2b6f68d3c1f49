// Arrays made from what each device is to hold: from a function of the block, from this process's rows, from shards.
#pragma once

#include <functional>
#include <vector>

#include "sharding/array/array.h"

namespace tessera {

// A process that has none of the mesh's devices gives what the first process of the mesh gives; it holds nothing of it.

// An array of this shape whose blocks are made by `make_block`, which is called once for each distinct block that this
// process's devices hold, in mesh order, with its ranges in the whole. Nothing larger than a block is ever made:
//   make_array_from_callback({n, 4}, sharding, [&](const IndexRanges& block) { return rows(file, block[0]); });
// A block is an array that is not placed; all are of one element type.
// Errors: NamedSharding's; a block of another shape than its ranges say (shape_mismatch), blocks of several element
// types (dtype_mismatch), an absent block (missing_array), a block that is placed on a mesh (device_mismatch), a spec
// that leaves a sum pending (invalid_argument), since ranges do not say which term of the sum a device is to hold.
Array make_array_from_callback(const Shape& shape, const NamedSharding& sharding,
                               const std::function<Array(const IndexRanges&)>& make_block);

// An array of which `local` is this process's part: all of it if one process has the whole mesh; else, along every dim,
// the rows that the blocks of its devices cover, in order. All processes call it; those that hold the same part give
// the same values. `shape`, if given, is the global shape; a `local` of other sizes than this process's part is an
// Error (shape_mismatch). A size 0 in `shape` is no wildcard: it must be 0 in `local` too. Errors: NamedSharding's; a
// process whose rows are not contiguous (invalid_argument).
Array make_array_from_process_local_data(const NamedSharding& sharding, const Array& local);
Array make_array_from_process_local_data(const NamedSharding& sharding, const Array& local, const Shape& shape);

// The global shape of which `local` is this process's part; and this process's part of a global shape.
Shape shape_from_process_local(const NamedSharding& sharding, const Shape& local);
IndexRanges process_local_part(const NamedSharding& sharding, const Shape& shape);

// An array of one shard for each of this process's devices, in mesh order: the inverse of addressable_shards
// (jax.make_array_from_single_device_arrays). A shard is an array that is not placed, or one that lies on its device
// alone. If the spec leaves a sum pending, a shard is its device's term of the sum.
// Errors: not as many shards as devices, or one of another shape than its block (shape_mismatch), shards of several
// element types (dtype_mismatch), a shard on another device (device_mismatch), replicas of a block that are not equal
// bit by bit (invalid_argument).
Array make_array_from_shards(const Shape& shape, const NamedSharding& sharding, const std::vector<Array>& shards);

}  // namespace tessera
