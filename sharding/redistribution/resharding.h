// Resharding: the steps of an array from one sharding to another, forward and backward.
#pragma once

#include <vector>

#include "sharding/redistribution/communicate.h"
#include "sharding/redistribution/step.h"

namespace tessera::detail {

// The steps of a conversion. The autograd graph runs them backward, and a ReshardAfterForward runs them again.
struct Resharding {
  const Type* from;
  const Type* to;  // if its element type differs, tensors are cast before the first step
  std::vector<StepPtr> steps;
  DType gradients;  // the element type in which gradients are communicated
  Provenance cause;

  bool gathers() const;
  // forward and backward communicate. Neither is recorded for gradients.
  Tensors forward(const Tensors& x, bool in_backward_pass = false) const;
  Tensors backward(Tensors gradients) const;
};

// A reduction over mesh axes inside an operation. The autograd graph keeps it, so it outlives the operation's plan.
struct ShardedReduction {
  std::shared_ptr<const Step> step;
  const Type* from;
  const Type* to;
  Provenance cause;

  // Takes one tensor per slot and returns, for each slot, the result of its group: all_reduce, its max, min or product,
  // or all_gather along dimension 0 in the order of the group. Not recorded for gradients.
  Tensors combine(const Tensors& parts, Collective collective, bool in_backward_pass = false) const;
  // Starts a permute, which proceeds while this process computes: device i of each group gets the tensor of the group's
  // device senders[i]. finish() of the Transfer returns these tensors as its only array.
  Transfer permute(const Tensors& parts, std::vector<int> senders, bool in_backward_pass = false) const;
};
// Makes the reduction over mesh axes `axes` of one tensor per slot over `slots`. Devices are numbered in the mesh's
// order of axes, or in `order` if given.
ShardedReduction sharded_reduction_over(const MeshImpl* mesh, AxisSet axes, AxisSet slots, const Type* from,
                                        const Type* to, const Provenance& cause, const DimAxes& order = {});

}  // namespace tessera::detail
