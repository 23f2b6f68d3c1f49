// GradientOptions: how gradients are computed, reduced and stored.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sharding/placement/dtype.h"

namespace tessera {

// The unit in which weights are gathered and their gradients reduce-scattered.
enum class GatherGroups : uint8_t {
  by_block,      // one unit per element of a list ("layers.2.attention.q.kernel" is in "layers.2"); other weights alone
  by_parameter,  // one unit per weight
};

// Options of nn::value_and_grad and of a Tape.
struct GradientOptions {
  // If true, a gathered weight is freed after its use, and gathered again if the backward pass reads it: no device ever
  // stores the complete model. If false, weights are gathered once per step and kept until the step ends.
  bool reshard_after_forward = true;
  // Weights gathered one after the other are gathered in one collective for each group, mesh axes and element type.
  // Their gradients are reduce-scattered in the same way (as in FSDP's units). The order of gathers is recorded in the
  // previous step. The first step of a program, and a step that gathers in another order, gather each weight alone.
  GatherGroups gather_groups = GatherGroups::by_block;
  // How many groups are prefetched while one computes, if the mesh has several processes. 0: none. Each prefetched
  // group takes memory.
  int prefetch_groups = 1;
  // If false, gradients remain partial sums over the mesh axes along which the work differs, and are not communicated.
  // The sums of several micro-batches can then be reduced once, and an optimizer can reduce-scatter them to its own
  // sharding. Inside a shard_map, sums over manual axes are always reduced.
  bool reduce = true;
  // Mesh axes over which gradients are sharded (ZeRO-1), as an optim::Optimizer with the same `shard_state_over` shards
  // its state. Their sums are reduce-scattered, between processes during the backward pass, and `reduce` is ignored.
  // With several micro-batches, gradients remain partial sums, which the optimizer reduce-scatters.
  std::vector<std::string> shard_gradients_over = {};
  // The element type in which gradients of parameters are communicated. Default: the parameter's own; with several
  // micro-batches, at least float32.
  std::optional<DType> reduce_dtype = {};
  // Inside another tape, gradients are recorded, as in JAX, so that the enclosing tape computes second derivatives.
  // Each parameter's gradient is then reduced alone; `reduce`, `shard_gradients_over` and `reduce_dtype` are ignored.
  // Operations of define_operation may throw no_gradient. If false, gradients are constants to other tapes.
  std::optional<bool> differentiable = {};
};

}  // namespace tessera
