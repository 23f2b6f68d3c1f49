// --strategy auto of train_transformer: the library's search, as the options that a user would have given.
#pragma once

#include "data/to_global.h"
#include "examples/train_options.h"
#include "nn/placement.h"
#include "nn/report.h"
#include "nn/transformations.h"
#include "optim/optimizer.h"

namespace tessera::examples {

// Where the optimizer's state is cut further, so are the gradients.
template <class Loss>
auto loss_and_gradients(const Loss& loss_fn, const nn::Filter& trained, const StepOptions& step) {
  const GradientOptions options{.borrow_gathers = step.borrow_gathers,
                                .prefetch = static_cast<int>(step.prefetch),
                                .overlap_sums = step.overlap_sums,
                                .shard = step.shard_state};
  return [=, accumulated = nn::accumulate_gradients(loss_fn, step.micro_batches, trained, options),
          schedule = step.schedule, n = step.micro_batches](const auto& model, const auto& batch) {
    if (!schedule) return accumulated(model, batch);
    return nn::pipeline(loss_fn, {.micro_batches = n, .schedule = *schedule}, trained, options)(model, batch);
  };
}

// A training step for any layout: a model that `make` makes there, and rows of the right shape, which take no memory.
template <class Make, class Batch, class Loss, class Transform>
nn::PipelineStep step_for_layouts(const StepOptions& options, const Make& make, const Batch& rows, const Loss& loss_fn,
                                  const Transform& transform, const nn::Filter& trained = nn::is_trainable) {
  return [=](const Layout& layout, const GradientOptions& gradients, const nn::PipelineOptions& pipeline) {
    StepOptions step = options;
    step.take(pipeline);
    step.shard_state = gradients.shard;
    step.borrow_gathers = gradients.borrow_gathers;
    auto model = make(layout);
    auto optimizer = optim::Optimizer(model, transform, {.shard_state = step.shard_state});
    const auto [loss, grads] =
        loss_and_gradients(loss_fn, trained, step)(model, data::from_process_local(rows, layout));
    optimizer.update(model, grads);
    return nn::placement_table(nn::named("model", model, "gradients", grads, "optimizer", optimizer));
  };
}

// Searches the layouts of the step by options.automatic, prints what is found, and leaves the best in `options`: mesh,
// rules, shard_state, borrow_gathers and, of a pipeline, its micro-batches and schedule. All processes call it. Errors:
// those of suggest_layouts, of best() and of load_hardware.
void choose_layout(const nn::PipelineStep& step, TrainOptions& options);

}  // namespace tessera::examples
