// redistribute: the one place where a collective is chosen.
#pragma once

#include <vector>

#include "sharding/array_impl.h"
#include "sharding/pieces.h"

namespace tessera::detail {

// What the devices of one group do together, on one dim of their tensors.
enum class Move : uint8_t {
  identity,        // everyone has what it had
  all_reduce,      // everyone gets the sum
  all_gather,      // everyone gets the blocks, joined along the dim
  reduce_scatter,  // each gets its block of the sum
  all_to_all,      // the dim that is cut changes
  slice,           // each keeps its block
  pad,             // each puts its block into zeros
  keep_first,      // the first keeps its tensor, the others have zeros
  all_reduce_max,  // everyone gets the largest, elementwise
  all_reduce_min,  // everyone gets the smallest
  all_reduce_product,
  permute,   // each gets what the one that sends to it has, or zeros
  exchange,  // everyone gets the pieces of its new block from those who have them
};

// The rows of the table: how one state of a mesh axis becomes another. Each row states its own backward, which is
// the way between the cotangents' states (sharded <-> sharded, replicated <-> replicated, unreduced <-> reduced).
//
//   from          to            forward         backward
enum class Row : uint8_t {
  unreduced_to_replicated,  // all_reduce      identity
  unreduced_to_reduced,     // all_reduce      all_reduce
  unreduced_to_sharded,     // reduce_scatter  all_gather
  sharded_to_replicated,    // all_gather      slice
  sharded_to_reduced,       // all_gather      reduce_scatter
  sharded_to_sharded,       // all_to_all      all_to_all
  sharded_to_unreduced,     // pad             slice
  replicated_to_sharded,    // slice           all_gather
  replicated_to_reduced,    // identity        all_reduce
  replicated_to_unreduced,  // keep_first      identity
  reduced_to_replicated,    // identity        keep_first
  exchanged,                // block_exchange  block_exchange  (any blocks to any others, where that moves less)
  spread,                   // an uncommitted array gets its copies: identity both ways
  varying_to_varying,       // permute         permute, the other way (only where a program says so)
};

// This process's devices of those that act together, as indices of their local tensors.
struct Group {
  std::vector<int> in, out;
};

// The processes whose devices act together where a step's axes lie across processes, and their devices' numbers in a
// group, alike in all groups.
struct Members {
  std::vector<int> processes;  // none: all devices are this process's
  int self = 0;                // this one's place among them
  std::vector<std::vector<int>> numbers;
};

// One row carried out over one set of mesh axes.
struct Step {
  Row row;
  const MeshImpl* mesh;
  Mask axes;
  int dim = 0;     // the dim that is gathered, scattered or sliced
  int to_dim = 0;  // all_to_all: the dim that is cut afterwards
  Mask slots_in = 0, slots_out = 0;
  int tensors_in = 1, tensors_out = 1;
  std::vector<Group> groups;
  Members members = {};
  std::vector<int> senders = {}, receivers = {};  // permute: to and from each device of a group; -1 for none
  std::shared_ptr<const Pieces> pieces;           // of Row::exchanged
  double cost = 0;                                // bytes that a device sends, forward and backward together
};

// The step that puts the blocks of `to` together from pieces of one or several operands placed as `from`.
Step exchange_step(const Type* from, const Type* to, std::shared_ptr<const Pieces> pieces);

struct Route {
  std::vector<std::shared_ptr<const Step>> steps;  // graphs hold them too, and may outlive the cache of routes
  double cost = 0;
};

// The steps from a placement to another, in the order shrink, sum, exchange, grow. `slots` are those of the tensors
// at the start. Kept by the thread in a bounded cache.
const Route& route(const Type* from, Mask slots, const Type* to);

// What the devices do at a step, and its name in ledgers; null where nothing is communicated.
Move forward_move(const Step& step);
const char* name_of(Move move);
// The bytes of the result on a device, from those of its operand.
int64_t result_bytes(Move move, int64_t bytes, int devices);
// The step carried out, recorded nowhere.
Tensors exchange_forward(const Step& step, const Tensors& x, const Cause& cause);
Tensors as_dtype(const Tensors& tensors, DType dtype);

// An array's way from one type to another, which a graph can go back and a borrowed gather can go again.
struct Passage {
  const Type* from;
  const Type* to;  // with another element type, the tensors are cast before they move
  std::vector<std::shared_ptr<const Step>> steps;
  DType gradients;  // the element type in which gradients move back
  Cause cause;

  bool gathers() const;
  // Announced to ledgers and guards; not recorded for gradients.
  Tensors forward(const Tensors& x, bool in_backward_pass = false) const;
  Tensors backward(Tensors gradients) const;

 private:
  // Before the first step moves anything: one later on may be forbidden.
  void ask_about_steps(const at::Tensor& x, bool in_backward_pass) const;
};

// The form of `a` as `to` that is there already: `a` itself, a leaf, or a conversion that was kept; else null.
const ArrayPtr* known_form(const ArrayImpl& a, const ArrayPtr& self, const Type* to, bool recorded);

// `a` as `to`, recorded for gradients where they are wanted. Shapes and element types must be equal. A weight that is
// gathered for a gradient comes on loan: see borrow.h.
ArrayPtr convert(ArrayImpl& a, const ArrayPtr& self, const Type* to, const Cause& cause);

// The devices of an operation that itself reduces over some mesh axes. Graphs keep it: it outlives the plan.
struct Inside {
  std::shared_ptr<const Step> step;
  const Type* from;
  const Type* to;
  Cause cause;

  // One tensor per slot in, what the devices of its group make of it together out: by all_reduce, one of its kin, or
  // all_gather along dim 0 in the order of the group. Not recorded for gradients.
  Tensors combine(const Tensors& parts, Move move, bool in_backward_pass = false) const;
};
// Over `axes` of the mesh, of tensors at `slots`.
Inside inside_of(const MeshImpl* mesh, Mask axes, Mask slots, const Type* from, const Type* to, const Cause& cause);

// Inside shard_map: one row, carried out by the devices of `axes` (numbered in this order), along which the array
// differs before or after; the row's states are how its devices read what they have.
Passage passage_over(Row row, const Type* from, const Type* to, const DimAxes& axes, int dim, int to_dim,
                     const Cause& cause);
// Row::varying_to_varying: senders[i] is the number of the device whose tensor the i-th gets, -1 for zeros.
Passage permutation(const Type* type, const DimAxes& axes, std::vector<int> senders, const Cause& cause);
// The largest or smallest of all devices' tensors (all_reduce_max, all_reduce_min); not recorded for gradients.
Tensors reduce_over(const Type* from, const Type* to, const DimAxes& axes, const Tensors& x, Move move,
                    const Cause& cause);

}  // namespace tessera::detail

namespace tessera {

// x with another placement. Communication is recorded with the reason "asked for".
Array redistribute(const Array& x, const NamedSharding& to,
                   std::source_location where = std::source_location::current());

}  // namespace tessera
