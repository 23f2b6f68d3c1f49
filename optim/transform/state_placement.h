// OptimizerOptions: shards an optimizer's state further than the parameters (ZeRO-1).
#pragma once

#include <string>
#include <vector>

#include "optim/transform/transform.h"

namespace tessera::optim {

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
};

namespace detail {

// Replace the arrays of `tree`, a copy: each gets the sharding of its parameter's state, or of the parameter. Arrays
// that are resharded in the same way share one collective. Absent arrays stay absent.
void place_with_state(const Arrays& tree, const Arrays& params, const OptimizerOptions& options);
void place_with_parameters(const Arrays& tree, const Arrays& params);
// Replaces parameters by the arrays of `shards` that differ from `before`, gathered to the parameters' shardings.
void gather_updated(const Arrays& shards, const Arrays& before, const Arrays& params);

// Checks the mesh axes of the options.
// Errors
//   unknown_axis: an axis that the parameters' mesh does not have
//   invalid_argument: an axis that is given twice
void check_axes(const Arrays& params, const OptimizerOptions& options);

}  // namespace detail
}  // namespace tessera::optim
