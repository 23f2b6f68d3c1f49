// --strategy auto of train_transformer: sets the options that a user would pass for the library's best strategy.
#pragma once

#include <tessera/data/batches.h>
#include <tessera/nn/placement.h>
#include <tessera/nn/report.h>
#include <tessera/nn/transformations.h>
#include <tessera/optim/optimizer.h>

#include "examples/train_options.h"

namespace tessera::examples {

// Shards gradients over the same additional mesh axes as the optimizer's state.
template <class Loss>
auto loss_and_gradients(const Loss& loss_fn, const nn::Filter& trained, const StepOptions& step) {
  const GradientOptions options{.reshard_after_forward = step.reshard_after_forward,
                                .prefetch_groups = static_cast<int>(step.prefetch_groups),
                                .shard_gradients_over = step.shard_state_over};
  return [=, accumulated = nn::accumulate_gradients(loss_fn, step.num_micro_batches, trained, options),
          schedule = step.schedule, n = step.num_micro_batches](const auto& model, const auto& batch) {
    if (!schedule) return accumulated(model, batch);
    return nn::pipeline(loss_fn, {.num_micro_batches = n, .schedule = *schedule}, trained, options)(model, batch);
  };
}

// A training step for any strategy: the model that `make` returns, and rows of the right shape, which take no memory.
template <class Make, class Batch, class Loss, class Transform>
nn::PipelineStep step_for_strategies(const StepOptions& options, const Make& make, const Batch& rows,
                                     const Loss& loss_fn, const Transform& transform,
                                     const nn::Filter& trained = nn::is_trainable) {
  return [=](const MeshRules& mesh_rules, const GradientOptions& gradients, const nn::PipelineOptions& pipeline) {
    StepOptions step = options;
    step.take(pipeline);
    step.shard_state_over = gradients.shard_gradients_over;
    step.reshard_after_forward = gradients.reshard_after_forward;
    auto model = make(mesh_rules);
    auto optimizer = optim::Optimizer(model, transform, {.shard_state_over = step.shard_state_over});
    const auto [loss, grads] =
        loss_and_gradients(loss_fn, trained, step)(model, data::from_process_local(rows, mesh_rules));
    optimizer.update(model, grads);
    return nn::placement_table(nn::named("model", model, "gradients", grads, "optimizer", optimizer));
  };
}

// Searches the strategies of the step by options.automatic, prints the result, and writes the best to `options`: mesh,
// rules, shard_state_over, reshard_after_forward and, for a pipeline, its micro-batches and schedule. All processes
// must call it. Errors: as suggest_strategies, best() and load_hardware.
void choose_strategy(const nn::PipelineStep& step, TrainOptions& options);

}  // namespace tessera::examples
