// GradientOptions: how gradients are computed, reduced and kept.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sharding/placement/dtype.h"

namespace tessera {

// What is gathered and reduce-scattered together.
enum class GatherGroups : uint8_t {
  by_block,  // what one element of a list owns: "layers.2.attention.q.kernel" is of "layers.2"; others by themselves
  by_parameter,  // each by itself
};

// Options of nn::value_and_grad and of a Tape.
struct GradientOptions {
  // A gathered weight is freed after its use, and gathered again if the backward pass reads it: no device ever holds
  // the whole model. If false, weights are gathered once a step and kept until the step ends.
  bool reshard_after_forward = true;
  // Weights that a step gathers one after the other are gathered in one collective for each group, mesh axes and
  // element type, and so are their gradients reduce-scattered (FSDP's units). The groups of gathers are those of the
  // step before; a program's first step, and one that takes another way, gathers each weight by itself.
  GatherGroups gather_groups = GatherGroups::by_block;
  // How many groups are gathered ahead, between processes, while one computes; 0: none. So many more are in memory.
  int prefetch_groups = 1;
  // If false, gradients stay pending sums over the mesh axes along which the work differs, and nothing is communicated
  // for them: the sums of several micro-batches can be reduced once, and an optimizer can reduce-scatter them to its
  // own placement. Inside a shard_map sums over manual axes are reduced in any case.
  bool reduce = true;
  // Mesh axes over which gradients are cut, as an optim::Optimizer with the same `shard_state_over` cuts its state
  // (ZeRO-1): their sums are reduce-scattered, between processes during the backward pass. `reduce` has no say then. Of
  // several micro-batches they stay pending sums, which the optimizer reduce-scatters.
  std::vector<std::string> shard_gradients_over = {};
  // The element type in which gradients of parameters cross the devices; by default the parameter's own, and of several
  // micro-batches float32 at least.
  std::optional<DType> reduce_dtype = {};
  // Inside another tape the gradients are recorded, as in JAX, so that the enclosing tape differentiates them as well:
  // second derivatives. Each parameter's gradient is then reduced on its own, whatever `reduce`, `shard_gradients_over`
  // and `reduce_dtype` say, and operations with a handmade gradient may refuse (no_gradient). If false, the gradients
  // are constants to other tapes.
  std::optional<bool> differentiable = {};
};

}  // namespace tessera
