// Step: what the devices of some mesh axes do together, once.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sharding/array/array_impl.h"
#include "sharding/redistribution/block_exchange.h"

namespace tessera::detail {

// What the devices of one group do together, on one dim of their tensors.
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
  permute,             // each gets what the one that sends to it has, or zeros
  block_exchange,      // everyone gets the pieces of its new block from those who have them
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
  exchanged,           // any blocks to any others, where that moves less
  spread,              // an uncommitted array gets its copies
  varying_to_varying,  // only where a program says so
};

// This process's devices of those that act together, as indices of their local tensors.
struct Group {
  std::vector<int> in, out;
};

// The processes whose devices act together where a step's axes lie across processes, and their devices' numbers in a
// group, alike in all groups.
struct GroupProcesses {
  std::vector<int> processes;  // none: all devices are this process's
  int self = 0;                // this one's place among them
  std::vector<std::vector<int>> numbers;
};

// One row carried out over one set of mesh axes.
struct Step {
  Row row;
  const MeshImpl* mesh;
  AxisSet axes;
  int dim = 0;     // the dim that is gathered, scattered or sliced
  int to_dim = 0;  // all_to_all: the dim that is cut afterwards
  AxisSet slots_in = 0, slots_out = 0;
  int tensors_in = 1, tensors_out = 1;
  std::vector<Group> groups;
  GroupProcesses processes = {};
  std::vector<int> senders = {}, receivers = {};  // permute: to and from each device of a group; -1 for none
  std::shared_ptr<const BlockExchange> exchange;  // of Row::exchanged
  const MeshImpl* mesh_before = nullptr;          // exchanged between two meshes: the operand's
  double cost = 0;                                // bytes that a device sends, forward and backward together
};

using StepPtr = std::shared_ptr<const Step>;  // graphs hold steps too, and may outlive the cache of routes

// Fills in the step's groups and processes: the devices that act together, numbered over its axes in the mesh's order,
// or in the one given.
void form_groups(Step& step, const DimAxes& order = {});

// The step that puts the blocks of `to` together from pieces of one or several operands placed as `from`.
Step exchange_step(const Type* from, const Type* to, std::shared_ptr<const BlockExchange> exchange);

Tensors as_dtype(const Tensors& tensors, DType dtype);

}  // namespace tessera::detail
