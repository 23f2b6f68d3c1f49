// Where an optimizer's state lies if not with the parameters: ZeRO-1.
#pragma once

#include <string>
#include <vector>

#include "optim/transform.h"

namespace tessera::optim {

// Options of an Optimizer.
struct OptimizerOptions {
  // Mesh axes over which the state is cut as well, those of the batch: each device then keeps and computes its part of
  // the update, and the new parameters are gathered. (Rajbhandari et al., "ZeRO: memory optimizations toward training
  // trillion parameter models", 2020: stage 1.) A parameter's state is cut on its first dim that these axes divide; an
  // axis that the parameter's own placement uses is left out; where no dim can be cut, the state follows its parameter.
  //   optim::Optimizer(model, transform, {.shard_state = {"data"}});
  // Gradients that value_and_grad(loss_fn, {.reduce = false}) left pending are reduce-scattered, once for all; others
  // have been all_reduced already, which gives the same parameters.
  std::vector<std::string> shard_state = {};
};

namespace detail {

// Replaces the arrays of `tree`, a copy: each goes where the state of its partner in `params` lies, or where that
// partner lies itself. What moves alike moves in one collective. Absent arrays stay.
void place_with_state(const Arrays& tree, const Arrays& params, const OptimizerOptions& options);
void place_with_parameters(const Arrays& tree, const Arrays& params);
// Makes those of `shards` that are no longer what they were `before` the parameters: gathered to where these lie.
void gather_updated(const Arrays& shards, const Arrays& before, const Arrays& params);

// Errors: an axis that the parameters' mesh does not have (unknown_axis), or that is given twice (bad_argument).
void check_axes(const Arrays& params, const OptimizerOptions& options);

}  // namespace detail
}  // namespace tessera::optim
