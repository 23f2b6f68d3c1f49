// pipeline: the gradient of a batch in micro-batches that pass through the stages of a model concurrently.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <source_location>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "nn/transformations/accumulate_gradients.h"
#include "sharding/base/thread_state.h"

namespace tessera::nn {

// Order in which a process runs the forward and backward passes of its micro-batches. On an abstract mesh, all stages
// use the first stage's order, which keeps the most activations.
enum class PipelineSchedule {
  gpipe,        // all forward passes, then all backward passes: keeps every micro-batch's activations
  one_f_one_b,  // each backward pass as early as possible: stage s of S keeps the activations of at most S - s
};
std::string_view name_of(PipelineSchedule schedule);

struct PipelineOptions {
  int64_t num_micro_batches = 1;
  PipelineSchedule schedule = PipelineSchedule::gpipe;
};

namespace detail {

// A pass of one micro-batch.
struct ScheduledPass {
  bool is_backward;
  int64_t micro_batch;
  friend bool operator==(const ScheduledPass&, const ScheduledPass&) = default;
};
// Returns the passes of a process that has the devices of stage `stage` of `stages`.
std::vector<ScheduledPass> passes_of(const PipelineOptions& options, int64_t stage, int64_t stages);
// Returns the passes of this process for a model with these arrays.
std::vector<ScheduledPass> passes_of(const PipelineOptions& options, const Leaves& model);

// Scope of a micro-batch's forward pass. Under one_f_one_b with several micro-batches, no activation may go back to an
// earlier stage.
class ForwardScope {
 public:
  explicit ForwardScope(const PipelineOptions& options);

 private:
  tessera::detail::ScopedValue<bool> forward_only_;
};

inline Array drop_graph_of(const Array& loss) { return tessera::detail::drop_graph(loss); }
template <class Aux>
std::pair<Array, Aux> drop_graph_of(std::pair<Array, Aux> value) {
  value.first = tessera::detail::drop_graph(value.first);
  for (Array* x : bare_arrays(value.second).arrays) *x = tessera::detail::drop_graph(*x);
  return value;
}

// One micro-batch between its forward and backward pass.
template <class Result>
struct MicroBatchState {
  std::unique_ptr<Training> training;
  std::optional<Result> result;
};

template <class F, class Model, class... Args>
auto pipeline_of(const F& part_loss, const PipelineOptions& options, const Filter& trained,
                 const GradientOptions& of_part, const GradientOptions& of_all, Model& model, const Args&... batch) {
  using Tree = std::remove_const_t<Model>;
  using Result = decltype(part_loss(model, batch...));
  const int64_t n = options.num_micro_batches, blocks = blocks_of_rows({leaves(batch)...});
  check_rows({leaves(batch)...}, blocks, n, "pipeline");
  check_axes(leaves(model), of_all, "pipeline");
  if (has_ledger()) notify_unplaced({argument_of<Tree>(model), argument_of<Args>(batch)...});
  std::vector<MicroBatchState<Result>> parts(n);
  std::optional<Tree> gradients;
  Tree running = model;  // the model receives its Buffers only after the last micro-batch
  for (const auto [is_backward, i] : passes_of(options, leaves(model))) {
    auto& [training, result] = parts[i];
    if (!is_backward) {
      const ForwardScope scope(options);
      training = std::make_unique<Training>(leaves(running), trained, of_part);
      Tree shadow = running;
      const std::vector<Array> given = training->shadows();
      const BareArrays bare = bare_arrays(shadow);
      set_values(bare.arrays, given);
      result = part_loss(static_cast<Model&>(shadow), micro_batch(batch, blocks, i, n)...);
      training->pause();
      if constexpr (!std::is_const_v<Model>)
        write_back(running, training->model(),
                   kept_after_call(training->model(), bare.structure, given, bare_arrays(shadow), "pipeline",
                                   /*settle=*/true),
                   shadow, "pipeline");
      continue;
    }
    training->resume();
    Tree gradient = model;
    set_values(bare_arrays(gradient).arrays, training->gradients(loss_in(*result)));
    training.reset();
    result = drop_graph_of(*std::move(result));
    if (gradients)
      add(leaves(*gradients), leaves(gradient));
    else
      gradients = std::move(gradient);
  }
  PartSums sums{.losses = {}, .weights = {}, .gradients = leaves(*gradients)};
  for (const MicroBatchState<Result>& part : parts) sums.add(loss_in(*part.result), weight_in(*part.result));
  Array loss = tessera::detail::finalize_result(sums.finish(leaves(model), of_all));
  using Aux = decltype(aux_in(std::declval<Result>()));
  std::vector<Aux> aux;
  if constexpr (!std::is_same_v<Aux, NoAux>)
    for (MicroBatchState<Result>& part : parts) aux.push_back(finalize_tree(aux_in(*std::move(part.result))));
  if constexpr (!std::is_const_v<Model>) take_state(model, running);
  if constexpr (std::is_same_v<Aux, NoAux>) {
    return std::pair(std::move(loss), *std::move(gradients));
  } else {
    return std::pair(std::pair(std::move(loss), std::move(aux)), *std::move(gradients));
  }
}

}  // namespace detail

// Returns a function that computes nn::accumulate_gradients(loss_fn, n)(model, batch...) in another order. The model's
// layers must be placed on stages (filter_shard with a rule such as {"layers", "pipe"}). Loss, gradients, aux, Buffers
// and reductions are the same. A process continues with its next micro-batch while other processes, on other stages,
// work on the previous one. S stages therefore idle for about (S - 1) / (n + S - 1) of the time. The schedule decides
// which activations are kept meanwhile.
//   const auto step = nn::pipeline(loss_fn, {.num_micro_batches = 8, .schedule = nn::PipelineSchedule::one_f_one_b});
//   const auto [loss, grads] = step(model, batch);
// Stages that are virtual devices of one process run one after another.
// Errors, in addition to those of accumulate_gradients
//   invalid_argument: num_micro_batches < 1; under one_f_one_b, an activation that goes back to an earlier stage
template <class F>
auto pipeline(F loss_fn, PipelineOptions options, Filter trained, GradientOptions gradients = {},
              std::source_location where = std::source_location::current()) {
  detail::check_micro_batches(options.num_micro_batches, "pipeline");
  GradientOptions of_part = gradients;
  if (options.num_micro_batches > 1) of_part.reduce = false, of_part.shard_gradients_over.clear();
  return [part_loss = detail::PartLoss<F>{std::move(loss_fn), options.num_micro_batches == 1}, options,
          trained = std::move(trained), of_part, gradients, where](auto&& model, const auto&... batch) {
    const CallerScope caller(where);
    detail::AsModel<decltype(model)>& as_given = model;
    return detail::pipeline_of(part_loss, options, trained, of_part, gradients, as_given, batch...);
  };
}
template <class F>
auto pipeline(F loss_fn, PipelineOptions options = {}, GradientOptions gradients = {},
              std::source_location where = std::source_location::current()) {
  return pipeline(std::move(loss_fn), options, is_trainable, gradients, where);
}

}  // namespace tessera::nn
