// from_process_local: this process's rows as global arrays over the mesh; shard_of: which rows a process has.
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
// Error (inconsistent): processes of the mesh give arrays of other types. All call it.
void check_same_types(const nn::Leaves& batch, const Mesh& mesh);
void make_global(const nn::Leaves& batch, const MeshRules& mesh_rules);
}  // namespace detail

// The same batch with global arrays: each array of this process's rows becomes one array over the mesh rules' mesh,
// placed by the names of its dims and the mesh rules' rules for activations; an array without names is replicated. One
// process gives all rows; of several, each gives its own rows along dim 0, and the global array has the rows of all,
// one below the other. Along other dims every process gives the whole dim, also where the rules shard it (a process
// that has only a part calls make_array_from_process_local_data). A process without a device of the mesh gives as many
// rows as the others, which go nowhere; of another number its arrays have other shapes than theirs, and nobody notices,
// since it need not be at the same place. The processes of the mesh call it together, and compare the types of their
// arrays; check_replicas finds processes that gave other rows than their replicas.
// Errors, with the field's path: as MeshRules::resolve; rules that do not shard dim 0 into the rows of each process
// (invalid_argument); processes that give other numbers of rows (inconsistent).
template <class Batch>
Batch from_process_local(const Batch& local, const MeshRules& mesh_rules) {
  Batch global = local;
  detail::check_same_types(nn::leaves(global), mesh_rules.mesh());
  detail::make_global(nn::leaves(global), mesh_rules);
  return global;
}

// Which rows a process holds of a batch that is placed by `spec`: dim 0 is divided into `count` runs of rows, one for
// each set of processes that hold the same rows, and `process` has the index-th. Processes along a mesh axis that does
// not shard dim 0 (a model axis) get the same index and so read the same rows. `process_of` names the process of each
// device in mesh order.
// Errors (invalid_argument): a process without a device; processes whose rows are not contiguous, overlap only in part,
// or differ in number: order the mesh's devices by process.
ShardOptions shard_of(const Mesh& mesh, const PartitionSpec& spec, int process, const std::vector<int>& process_of);

// The same for this process; {0, 1} if one process has the whole mesh; of a process that has none of it, as the first
// one's.
ShardOptions shard_of(const Mesh& mesh, const PartitionSpec& spec);

// The shard for LoaderOptions, by the mesh rules' rule for the logical axis `rows`:
//   Loader loader(tokens, token_batch, {.batch_size = 32, .shard = ShardByProcess(mesh_rules)});
// Errors: as MeshRules::resolve and shard_of.
struct ShardByProcess : ShardOptions {
  explicit ShardByProcess(const MeshRules& mesh_rules, const std::string& rows = "batch");
};

namespace detail {

// What this process has read of one array of a batch.
struct ReadRows {
  std::string array;     // inputs: int32[32@data,256]
  int64_t begin = 0;     // where its rows begin, in units of the mesh's size
  int64_t checksum = 0;  // of the rows' values
};
std::vector<ReadRows> read_rows(const nn::Leaves& local, const nn::Leaves& global);  // without communication

// check_replicas; `verb` and `batch` begin the error's message.
void check_rows(const char* verb, const std::string& batch, const std::vector<ReadRows>& rows, const Mesh& mesh);
// Error (inconsistent) unless all processes of the mesh give the same `input`; all call it.
void check_same_input(const char* verb, const std::string& input, const Mesh& mesh);
// The texts of all processes of the mesh; all call it.
std::vector<std::string> gathered_texts(const char* verb, const std::string& mine, const Mesh& mesh);

}  // namespace detail

// Checks that processes which hold the same rows (along a model axis) have read the same values; `global` is
// from_process_local of `local`. All processes of the mesh call it together; shard_batches does so for every batch.
// Errors (inconsistent), the same on all processes and naming two that differ: different values, as from different
// files or loader states; arrays of different shapes.
template <class Batch>
void check_replicas(const Batch& local, const Batch& global, const Mesh& mesh) {
  detail::check_rows("check_replicas", "the batch", detail::read_rows(nn::leaves(local), nn::leaves(global)), mesh);
}

}  // namespace tessera::data
