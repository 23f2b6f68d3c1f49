// Step: one collective, carried out once by the devices along some mesh axes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sharding/array/array_impl.h"
#include "sharding/redistribution/block_exchange.h"

namespace tessera::detail {

// The collective of the devices of one group, along one dimension of their tensors.
enum class Collective : uint8_t {
  identity,            // each device keeps its tensor
  all_reduce,          // each device gets the sum
  all_gather,          // each device gets the blocks, joined along the dimension
  reduce_scatter,      // each device gets its block of the sum
  all_to_all,          // the sharded dimension changes
  slice,               // each device keeps its block
  pad,                 // each device puts its block into zeros
  keep_first,          // the first device keeps its tensor, the others have zeros
  all_reduce_max,      // each device gets the maximum, elementwise
  all_reduce_min,      // each device gets the minimum
  all_reduce_product,  // each device gets the product
  permute,             // each device gets the tensor of the device that sends to it, or zeros
  block_exchange,      // each device gets the pieces of its new block from the devices that have them
  count,               // number of collectives
};

// The rows of the table (route.h): transitions from one state of a mesh axis to another.
enum class Row : uint8_t {
  unreduced_to_replicated,
  unreduced_to_reduced,
  unreduced_to_sharded,
  sharded_to_replicated,
  sharded_to_reduced,
  sharded_to_sharded,
  sharded_to_unreduced,
  replicated_to_sharded,
  replicated_to_reduced,
  replicated_to_unreduced,
  reduced_to_replicated,
  exchanged,           // from any blocks to any others, if that communicates fewer bytes
  spread,              // an uncommitted array gets a private replica on each device
  varying_to_varying,  // only by an explicit call, inside shard_map
  count,               // number of rows
};

// This process's devices of one group, as slots of the operand (in) and of the result (out).
struct Group {
  std::vector<int> in, out;
};

// The processes of a group, and for each process the numbers of its devices within a group, equal in all groups. It is
// for a step whose mesh axes cross processes.
struct GroupProcesses {
  std::vector<int> processes;  // empty: all devices belong to this process
  int self = 0;                // this process's index in that list
  std::vector<std::vector<int>> numbers;
};

// One row of the table, carried out over one set of mesh axes.
struct Step {
  Row row;
  const MeshImpl* mesh;
  AxisSet axes;
  int dim = 0;     // the dimension that is gathered, scattered or sliced
  int to_dim = 0;  // all_to_all: the dimension that is sharded afterwards
  // The sizes of these dimensions if the devices do not divide them, else 0. Blocks are padded before such a dimension
  // is split, and the padding is removed after such a dimension is joined from blocks.
  int64_t size = 0, to_size = 0;
  AxisSet slots_in = 0, slots_out = 0;
  int tensors_in = 1, tensors_out = 1;
  std::vector<Group> groups;
  GroupProcesses processes = {};
  std::vector<int> senders = {}, receivers = {};  // permute: the sender to and the receiver from each device, -1: none
  std::shared_ptr<const BlockExchange> exchange;  // only for Row::exchanged
  const MeshImpl* mesh_before = nullptr;          // the operand's mesh, in an exchange between two meshes
  double cost = 0;                                // bytes that one device sends, forward and backward together
};

using StepPtr = std::shared_ptr<const Step>;  // shared, since graphs hold steps too and may outlive the cache of routes

// Fills in the step's groups and processes. The devices of a group are numbered over the step's mesh axes, in the
// mesh's order of axes, or in `order` if given.
void form_groups(Step& step, const DimAxes& order = {});

// Returns the step that assembles the blocks of `to` from pieces of operands that are all placed as `from`.
Step exchange_step(const Type* from, const Type* to, std::shared_ptr<const BlockExchange> exchange);

// Returns the step from a sharding on one mesh to a sharding on another. Both meshes are over the same devices of the
// same processes.
Step step_between_meshes(const Type* from, const Type* to);

Tensors as_dtype(const Tensors& tensors, DType dtype);

}  // namespace tessera::detail
