// OptimizerOptions: shards an optimizer's state further than the parameters (ZeRO-1).
#pragma once

#include <string>
#include <vector>

#include "optim/transform/transform.h"

namespace tessera::optim {

// Options of an Optimizer.
struct OptimizerOptions {
  // Mesh axes, those of the batch, over which the state is sharded as well: each device then keeps and computes its
  // part of the update, and the new parameters are gathered. (Rajbhandari et al., "ZeRO: memory optimizations toward
  // training trillion parameter models", 2020: stage 1.) A state is sharded on the first dim that these axes divide,
  // without the axes that its parameter's placement uses; if no dim can be sharded, it is placed like its parameter.
  //   optim::Optimizer(model, transform, {.shard_state_over = {"data"}});
  // Gradients of value_and_grad(loss_fn, {.shard_gradients_over = {"data"}}) have the same sharding. Partial sums, of
  // {.reduce = false}, are reduce-scattered, all together; others have been all_reduced already, which gives the same
  // parameters. New parameters are gathered in groups of some MiB; between processes they are on their way when update
  // returns, and each is waited for at its next use.
  std::vector<std::string> shard_state_over = {};
};

namespace detail {

// Replace the arrays of `tree`, a copy: each gets the sharding of its parameter's state, or of the parameter. Arrays
// with the same move share one collective. Absent arrays stay absent.
void place_with_state(const Arrays& tree, const Arrays& params, const OptimizerOptions& options);
void place_with_parameters(const Arrays& tree, const Arrays& params);
// Replaces parameters by the arrays of `shards` that differ from `before`, gathered to the parameters' placements.
void gather_updated(const Arrays& shards, const Arrays& before, const Arrays& params);

// Errors: an axis that the parameters' mesh does not have (unknown_axis), or that is given twice (invalid_argument).
void check_axes(const Arrays& params, const OptimizerOptions& options);

}  // namespace detail
}  // namespace tessera::optim
