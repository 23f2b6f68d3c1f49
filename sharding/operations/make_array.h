// Arrays of what every device is to hold: from a function of the block, from this process's rows, from shards.
#pragma once

#include <functional>
#include <vector>

#include "sharding/array/array.h"

namespace tessera {

// An array of this shape whose blocks are made by `make_block`, which is called once for each distinct block that this
// process's devices hold, in mesh order, with its ranges in the whole. Nothing larger than a block is ever made:
//   make_array_from_callback({n, 4}, sharding, [&](const IndexRanges& block) { return rows(file, block[0]); });
// A block is an array that is not placed; all are of one element type.
// Errors: NamedSharding's; a block of another shape than its ranges say (shape_mismatch), blocks of several element
// types (dtype_mismatch), an absent block (absent), one that is placed on a mesh (device_mismatch). A spec that leaves
// a sum pending is refused (bad_argument): ranges do not say which part of a sum a device is to hold.
Array make_array_from_callback(const Shape& shape, const NamedSharding& sharding,
                               const std::function<Array(const IndexRanges&)>& make_block);

// An array of what this process holds of it: all of it where one process has the whole mesh; else the rows, along every
// dim, that the blocks of its devices cover, in their order. All processes call it, those that hold the same with the
// same values. `shape`, where it is given, is the global shape, and a `local` of other sizes than this process's part
// is an Error (shape_mismatch). A dim of 0 elements in `shape` stands for nothing special: it must be 0 in `local` too.
// Errors: NamedSharding's; rows of a process that are no run of neighbours (bad_argument).
Array make_array_from_process_local_data(const NamedSharding& sharding, const Array& local);
Array make_array_from_process_local_data(const NamedSharding& sharding, const Array& local, const Shape& shape);

// The global shape that `local` is this process's part of, and the part of a global shape that is this process's.
Shape shape_from_process_local(const NamedSharding& sharding, const Shape& local);
IndexRanges process_local_part(const NamedSharding& sharding, const Shape& shape);

// An array of one shard for each of this process's devices, in mesh order: the inverse of addressable_shards
// (jax.make_array_from_single_device_arrays). A shard is an array that is not placed, or one that lies on its device
// alone. Of a sum left pending, a shard is its device's part.
// Errors: not as many shards as devices, or one of another shape than its block (shape_mismatch), shards of several
// element types (dtype_mismatch), one that lies elsewhere (device_mismatch), and devices that hold the same block with
// other bits (bad_argument).
Array make_array_from_shards(const Shape& shape, const NamedSharding& sharding, const std::vector<Array>& shards);

}  // namespace tessera
