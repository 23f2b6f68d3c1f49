// From this process's rows to global arrays over the mesh, and which rows those are.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "data/shard_options.h"
#include "nn/tree.h"
#include "sharding/device_put.h"
#include "sharding/layout.h"
#include "sharding/make_array.h"

namespace tessera::data {

namespace detail {
Array global_array(const nn::Leaf& leaf, const Layout& layout);
}

// The same batch with global arrays: each array of this process's rows becomes one array over the layout's mesh,
// placed by the names of its dims and the layout's rules for activations; an array without names is replicated. With
// one process the rows are all rows; of several each gives its own part along every dim, and the global array has the
// parts of all (make_array_from_process_local_data).
// Errors, with the field's path: as Layout::resolve; rules that cut the global array otherwise than its parts
// (bad_argument).
template <class Batch>
Batch from_process_local(const Batch& local, const Layout& layout) {
  Batch global = local;
  for (const nn::Leaf& leaf : nn::leaves(global)) {
    if (leaf.value->is_absent()) continue;
    *leaf.value = detail::global_array(leaf, layout);
  }
  return global;
}

// Which rows of a batch placed as `spec` says a process holds: dim 0 falls into `count` runs of rows, one for each set
// of processes that hold the same, and this process has the index-th. Processes along an axis that does not cut dim 0
// (a model axis) get the same index and so read the same rows. `process_of` names the process of each device in mesh
// order.
// Errors (bad_argument): a process without a device; processes whose rows are no run of neighbours, overlap only in
// part, or differ in number: order the mesh's devices by process.
ShardOptions shard_of(const Mesh& mesh, const PartitionSpec& spec, int process, const std::vector<int>& process_of);

// Of this process; {0, 1} where one process has the whole mesh.
ShardOptions shard_of(const Mesh& mesh, const PartitionSpec& spec);

// The shard for LoaderOptions, by the layout's rule for the name of the rows:
//   Loader loader(tokens, token_batch, {.batch_size = 32, .shard = ShardByProcess(layout)});
// Errors: as Layout::resolve and shard_of.
struct ShardByProcess : ShardOptions {
  explicit ShardByProcess(const Layout& layout, const std::string& rows = "batch");
};

// What a process read: equal on all processes that read the same rows.
struct ReplicaChecksum {
  int process = 0;
  ShardOptions shard;
  uint64_t checksum = 0;
};

namespace detail {
uint64_t checksum_of(const nn::Leaves& leaves);
}

// A checksum of names, shapes, element types and values of a batch that is not placed.
template <class Batch>
uint64_t checksum(const Batch& local) {
  return detail::checksum_of(nn::leaves(local));
}

// Error (inconsistent) naming two processes of one shard whose rows differ: they read other files, or went on from
// other states.
void check_replicas(std::span<const ReplicaChecksum> checksums);

}  // namespace tessera::data
