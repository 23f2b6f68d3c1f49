// Resharding: an array's way from one placement to another, there and back.
#pragma once

#include <vector>

#include "sharding/redistribution/communicate.h"
#include "sharding/redistribution/step.h"

namespace tessera::detail {

// The steps of that way. The autograd graph goes them back, and a BorrowedGather goes them again.
struct Resharding {
  const Type* from;
  const Type* to;  // if its element type differs, the tensors are cast before they move
  std::vector<StepPtr> steps;
  DType gradients;  // the element type in which gradients move back
  Provenance cause;

  bool gathers() const;
  // These communicate, and are not recorded for gradients.
  Tensors forward(const Tensors& x, bool in_backward_pass = false) const;
  Tensors backward(Tensors gradients) const;
};

// A reduction over mesh axes inside an operation. The autograd graph keeps it, so it outlives the operation's plan.
struct ShardedReduction {
  std::shared_ptr<const Step> step;
  const Type* from;
  const Type* to;
  Provenance cause;

  // Takes one tensor per slot, returns for each slot what its group makes of them: by all_reduce or its max, min and
  // product, or by all_gather along dim 0 in the order of the group. Not recorded for gradients.
  Tensors combine(const Tensors& parts, Collective collective, bool in_backward_pass = false) const;
  // Each gets the tensor of the device senders[i] of its group.
  Tensors permute(const Tensors& parts, std::vector<int> senders, bool in_backward_pass = false) const;
  // The same, begun, and carried out while this process computes; finish() returns it as the only one.
  Transfer begin_permute(const Tensors& parts, std::vector<int> senders, bool in_backward_pass = false) const;
};
// The reduction over the mesh axes `axes`, of one tensor for each slot over `slots`. Devices are numbered in the mesh's
// order of axes, or in the one given.
ShardedReduction sharded_reduction_over(const MeshImpl* mesh, AxisSet axes, AxisSet slots, const Type* from,
                                        const Type* to, const Provenance& cause, const DimAxes& order = {});

// For a collective inside shard_map: one row of the table, carried out by the devices along `axes`, numbered in this
// order. The array differs along these axes before or after; the row's states say how their tensors are read.
Resharding resharding_over(Row row, const Type* from, const Type* to, const DimAxes& axes, int dim, int to_dim,
                           const Provenance& cause);
// Row::varying_to_varying: senders[i] is the number of the device whose tensor the i-th gets, -1 for zeros.
Resharding permutation(const Type* type, const DimAxes& axes, std::vector<int> senders, const Provenance& cause);
// The elementwise max or min of the devices' tensors (all_reduce_max, all_reduce_min); not recorded for gradients.
Tensors reduce_over(const Type* from, const Type* to, const DimAxes& axes, const Tensors& x, Collective collective,
                    const Provenance& cause);

}  // namespace tessera::detail
