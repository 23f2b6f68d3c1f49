// Resharding: an array's way from one placement to another, there and back.
#pragma once

#include <vector>

#include "sharding/redistribution/step.h"

namespace tessera::detail {

// Which a graph can go back and a borrowed gather can go again.
struct Resharding {
  const Type* from;
  const Type* to;  // with another element type, the tensors are cast before they move
  std::vector<StepPtr> steps;
  DType gradients;  // the element type in which gradients move back
  Cause cause;

  bool gathers() const;
  // Communicated, and not recorded for gradients.
  Tensors forward(const Tensors& x, bool in_backward_pass = false) const;
  Tensors backward(Tensors gradients) const;
};

// The devices of an operation that itself reduces over some mesh axes. Graphs keep it: it outlives the plan.
struct ShardedReduction {
  std::shared_ptr<const Step> step;
  const Type* from;
  const Type* to;
  Cause cause;

  // One tensor per slot in, what the devices of its group make of it together out: by all_reduce, one of its kin, or
  // all_gather along dim 0 in the order of the group. Not recorded for gradients.
  Tensors combine(const Tensors& parts, Collective collective, bool in_backward_pass = false) const;
};
// Over `axes` of the mesh, of tensors at `slots`.
ShardedReduction sharded_reduction_over(const MeshImpl* mesh, AxisSet axes, AxisSet slots, const Type* from,
                                        const Type* to, const Cause& cause);

// Inside shard_map: one row, carried out by the devices of `axes` (numbered in this order), along which the array
// differs before or after; the row's states are how its devices read what they have.
Resharding resharding_over(Row row, const Type* from, const Type* to, const DimAxes& axes, int dim, int to_dim,
                           const Cause& cause);
// Row::varying_to_varying: senders[i] is the number of the device whose tensor the i-th gets, -1 for zeros.
Resharding permutation(const Type* type, const DimAxes& axes, std::vector<int> senders, const Cause& cause);
// The largest or smallest of all devices' tensors (all_reduce_max, all_reduce_min); not recorded for gradients.
Tensors reduce_over(const Type* from, const Type* to, const DimAxes& axes, const Tensors& x, Collective collective,
                    const Cause& cause);

}  // namespace tessera::detail
