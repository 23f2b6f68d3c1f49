// Step: one collective, carried out once by the devices along some mesh axes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sharding/array/array_impl.h"
#include "sharding/redistribution/block_exchange.h"

namespace tessera::detail {

// What the devices of one group do together, along one dim of their tensors.
enum class Collective : uint8_t {
  identity,            // everyone has what it had
  all_reduce,          // everyone gets the sum
  all_gather,          // everyone gets the blocks, joined along the dim
  reduce_scatter,      // each gets its block of the sum
  all_to_all,          // the dim that is cut changes
  slice,               // each keeps its block
  pad,                 // each puts its block into zeros
  keep_first,          // the first keeps its tensor, the others have zeros
  all_reduce_max,      // everyone gets the largest, elementwise
  all_reduce_min,      // everyone gets the smallest
  all_reduce_product,  // everyone gets the product
  permute,             // each gets the tensor of the device that sends to it, or zeros
  block_exchange,      // everyone gets the pieces of its new block from those who have them
  count,               // how many there are: no collective
};

// The rows of the table (route.h): how one state of a mesh axis becomes another.
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
  exchanged,           // any blocks to any others, where that moves fewer bytes
  spread,              // an uncommitted array gets a private replica on each device
  varying_to_varying,  // only where a program asks for it, inside shard_map
  count,               // how many there are: no row
};

// This process's devices of one group, as slots of the operand (in) and of the result (out).
struct Group {
  std::vector<int> in, out;
};

// For a step whose mesh axes lie across processes: the processes whose devices act together, and for each process the
// numbers of its devices within a group, equal in all groups.
struct GroupProcesses {
  std::vector<int> processes;  // empty: all devices are this process's
  int self = 0;                // this process's index in that list
  std::vector<std::vector<int>> numbers;
};

// One row, carried out over one set of mesh axes.
struct Step {
  Row row;
  const MeshImpl* mesh;
  AxisSet axes;
  int dim = 0;     // the dim that is gathered, scattered or sliced
  int to_dim = 0;  // all_to_all: the dim that is cut afterwards
  // Their sizes where the devices do not divide them, else 0: blocks are padded before a dim is cut, and a dim that is
  // joined from padded blocks loses the padding.
  int64_t size = 0, to_size = 0;
  AxisSet slots_in = 0, slots_out = 0;
  int tensors_in = 1, tensors_out = 1;
  std::vector<Group> groups;
  GroupProcesses processes = {};
  std::vector<int> senders = {}, receivers = {};  // permute: the sender to and the receiver from each device, -1: none
  std::shared_ptr<const BlockExchange> exchange;  // of Row::exchanged
  const MeshImpl* mesh_before = nullptr;          // the operand's mesh, in an exchange between two meshes
  double cost = 0;                                // bytes that one device sends, forward and backward together
};

using StepPtr = std::shared_ptr<const Step>;  // graphs hold steps too, and may outlive the cache of routes

// Fills in the step's groups and processes. The devices of a group are numbered over the step's mesh axes, in the
// mesh's order of axes or in the one given.
void form_groups(Step& step, const DimAxes& order = {});

// The step that assembles the blocks of `to` from pieces of one or several operands, all placed as `from`.
Step exchange_step(const Type* from, const Type* to, std::shared_ptr<const BlockExchange> exchange);

Tensors as_dtype(const Tensors& tensors, DType dtype);

}  // namespace tessera::detail
