// OptimizerOptions: the sharding (ZeRO-1) and the memory of an optimizer's state.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "optim/transform/transform.h"

namespace tessera::optim {

// Kinds of memory, with JAX's names.
enum class MemoryKind : uint8_t { device, pinned_host };

// Options of an Optimizer.
struct OptimizerOptions {
  // Mesh axes of the batch over which the state is also sharded. Each device then stores and computes its shard of the
  // update, and the new parameters are gathered. (Rajbhandari et al., "ZeRO: memory optimizations toward training
  // trillion parameter models", 2020: stage 1.)
  //   optim::Optimizer(model, transform, {.shard_state_over = {"data"}});
  // A state is sharded on the first dimension that these axes divide, without the axes that shard its parameter. If no
  // dimension can be sharded, it is sharded like its parameter.
  //
  // Gradients of value_and_grad(loss_fn, {.shard_gradients_over = {"data"}}) have the same sharding. Partial sums, of
  // {.reduce = false}, are reduce-scattered, all together. Other gradients are already all-reduced, which gives the
  // same parameters. New parameters are gathered in groups of a few MiB. Between processes the gathers are still
  // running when update returns; each is waited for at its next use.
  std::vector<std::string> shard_state_over = {};

  // With pinned_host, the arrays of the state are in pinned host memory between updates, and take no memory of the
  // accelerator. The results are bit for bit the same. On CPUs the option has no effect. FSDP2's CPUOffloadPolicy does
  // the same for states. ZeRO-Offload (Ren et al., 2021) computes the update on the host instead.
  //   optim::Optimizer(model, transform, {.state_memory_kind = optim::MemoryKind::pinned_host});
  //
  // A fused update (Optimizer::update) copies the state in blocks, through two buffers of at most 64 MiB. Parameters
  // without weight decay have two more. Copies in both directions and kernels are concurrent. Other updates copy one
  // array after the other; until such an update ends, the host stores the old and the new state.
  //
  // An operation on an array of the state copies it to its device, where it stays until the next update.
  MemoryKind state_memory_kind = MemoryKind::device;
};

namespace detail {

// Replace the arrays of `tree`, a copy: each gets the sharding of its parameter's state, or of the parameter. Arrays
// that are resharded in the same way share one collective. Absent arrays stay absent.
void place_with_state(const Arrays& tree, const Arrays& params, const OptimizerOptions& options);
void place_with_parameters(const Arrays& tree, const Arrays& params);
// Replaces parameters by the arrays of `shards` that differ from `before`, gathered to the parameters' shardings.
void gather_updated(const Arrays& shards, const Arrays& before, const Arrays& params);

// Moves the arrays of a state to host memory. Error (invalid_argument): a graphed step on an accelerator is recorded.
void move_to_host(const Arrays& state);
// Returns the memory kind in which this thread makes the arrays of new states.
MemoryKind& new_state_memory_kind();
// Throws Error (invalid_argument) if the options request host memory, for a transform that does not support it.
void check_on_device(const OptimizerOptions& options);

// Checks the mesh axes of the options.
// Errors
//   unknown_axis: an axis that the parameters' mesh does not have
//   invalid_argument: an axis that is given twice
void check_axes(const Arrays& params, const OptimizerOptions& options);

}  // namespace detail
}  // namespace tessera::optim
