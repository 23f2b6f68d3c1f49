// from_process_local: turns each process's rows into global arrays. shard_of: the rows that a process reads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/datasets/shard_options.h"
#include "nn/tree/tree.h"
#include "sharding/operations/shape/make_array.h"
#include "sharding/placement/mesh_rules.h"
#include "sharding/redistribution/device_put.h"

namespace tessera::data {

namespace detail {
Array global_array(const Array& local, const NamedSharding& sharding);
// Throws Error (inconsistent) if processes of the mesh pass arrays of different types. All of them must call it.
void check_same_types(const nn::Leaves& batch, const Mesh& mesh);
void make_global(const nn::Leaves& batch, const MeshRules& mesh_rules);
}  // namespace detail

// Returns the same batch with global arrays. Each array of this process's rows becomes one array over the mesh of
// `mesh_rules`. Its sharding follows from the names of its dimensions and the rules for activations; an array without
// names is replicated.
//
// A single process passes all rows. Several processes each pass their own rows along dimension 0, and the global array
// concatenates them. Along each other dimension, every process passes all elements, also if the rules shard the
// dimension. (A process that has only some elements along such a dimension calls make_array_from_process_local_data.)
//
// A process without a device of the mesh must pass as many rows as the others; these rows are ignored. With a different
// number its arrays get wrong shapes. This is not detected, because such a process need not call at the same time.
//
// The processes of the mesh must call this function together; they compare the types of their arrays. check_replicas
// finds processes whose rows differ from their replicas' rows.
// Errors, with the field's path
//   those of MeshRules::resolve
//   invalid_argument: rules that do not shard dimension 0 into the rows of each process
//   inconsistent: processes that pass different numbers of rows
template <class Batch>
Batch from_process_local(const Batch& local, const MeshRules& mesh_rules) {
  Batch global = local;
  detail::check_same_types(nn::leaves(global), mesh_rules.mesh());
  detail::make_global(nn::leaves(global), mesh_rules);
  return global;
}

// Returns which rows process `process` reads of a batch with sharding `spec`. Dimension 0 is divided into `count` runs
// of rows, one for each set of processes that hold the same rows; the process reads run `index`. Processes along a mesh
// axis that does not shard dimension 0 (a model axis) get the same index and so read the same rows. `process_of` has
// the process of each device, in mesh order.
// Errors (invalid_argument)
//   a process without a device
//   processes whose rows are not contiguous, overlap only in part, or differ in number (order the mesh's devices by
//     process to avoid this)
ShardOptions shard_of(const Mesh& mesh, const PartitionSpec& spec, int process, const std::vector<int>& process_of);

// Returns the same for this process. The result is {0, 1} if one process has the complete mesh, and the first process's
// shard if this process has no device of the mesh.
ShardOptions shard_of(const Mesh& mesh, const PartitionSpec& spec);

// The shard of this process for LoaderOptions, by the rule of `mesh_rules` for the logical axis of a batch's rows:
//   Loader loader(tokens, token_batch, {.batch_size = 32, .shard = ShardByProcess(mesh_rules)});
// Errors: as MeshRules::resolve and shard_of.
struct ShardByProcess : ShardOptions {
  explicit ShardByProcess(const MeshRules& mesh_rules, const std::string& batch_axis = "batch");
};

namespace detail {

// The rows of one array of a batch that this process has read.
struct ReadRows {
  std::string array;     // for example inputs: int32[32@data,256]
  int64_t begin = 0;     // index of the first row, in units of the mesh's size
  int64_t checksum = 0;  // checksum of the rows' values
};
std::vector<ReadRows> read_rows(const nn::Leaves& local, const nn::Leaves& global);  // without communication

// Implements check_replicas; `verb` and `batch` begin the error's message.
void check_rows(const char* verb, const std::string& batch, const std::vector<ReadRows>& rows, const Mesh& mesh);
// Throws Error (inconsistent) unless all processes of the mesh pass the same `input`. All of them must call it.
void check_same_input(const char* verb, const std::string& input, const Mesh& mesh);
// Returns the texts of all processes of the mesh. All of them must call it.
std::vector<std::string> gathered_texts(const char* verb, const std::string& mine, const Mesh& mesh);

}  // namespace detail

// Throws unless processes that hold the same rows (along a model axis) have read the same values. `global` is
// from_process_local of `local`. All processes of the mesh must call it together; shard_batches does so for every
// batch.
// Errors (inconsistent), the same on all processes and naming two that differ: different values, for example from
// different files or loader states; arrays of different shapes.
template <class Batch>
void check_replicas(const Batch& local, const Batch& global, const Mesh& mesh) {
  detail::check_rows("check_replicas", "the batch", detail::read_rows(nn::leaves(local), nn::leaves(global)), mesh);
}

}  // namespace tessera::data
