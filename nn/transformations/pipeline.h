// pipeline: the gradient of a batch in micro-batches that pass through the stages of a model concurrently.
#pragma once

#include <cstdint>
#include <functional>
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
  interleaved,  // one_f_one_b over several virtual stages per stage: stages wait less, and send more often
};
std::string_view name_of(PipelineSchedule schedule);

struct PipelineOptions {
  int64_t num_micro_batches = 1;
  PipelineSchedule schedule = PipelineSchedule::gpipe;
  int64_t num_virtual_stages = 1;  // of each stage, as in the layers' rule; above 1 only with interleaved
};

namespace detail {

// A pass of one micro-batch over one of the virtual stages of its stage.
struct ScheduledPass {
  bool is_backward;
  int64_t micro_batch;
  int64_t virtual_stage = 0;
  friend bool operator==(const ScheduledPass&, const ScheduledPass&) = default;
};
// Returns the passes of a process that has the devices of stage `stage` of `stages`.
std::vector<ScheduledPass> passes_of(const PipelineOptions& options, int64_t stage, int64_t stages);
void check_options(const PipelineOptions& options);

// Transfers the Buffers of a pass before it is suspended, and after it continues.
struct SuspensionHooks {
  std::function<void()> before, after;
};

// Runs the passes of this process. Under interleaved, a pass over several virtual stages of this process runs in a
// PassThread, which is suspended after each virtual stage.
class PassRunner {
 public:
  // Throws not_divisible if, under interleaved, the number of micro-batches is not a multiple of the number of stages.
  PassRunner(const PipelineOptions& options, const Leaves& model);
  ~PassRunner();
  const std::vector<ScheduledPass>& passes() const { return passes_; }
  // Starts a pass with its first virtual stage, or continues it. Calls `pass` once for all virtual stages.
  void run(const ScheduledPass& scheduled, std::function<void(SuspensionHooks&)> pass);

 private:
  struct MicroBatch;
  MicroBatch& micro_batch(int64_t i);
  void run_pass(const ScheduledPass& scheduled, std::function<void(SuspensionHooks&)> pass);

  PipelineOptions options_;
  int64_t num_stages_ = 1, first_ = 0, last_ = 0;  // stages of the model; those of this process
  int64_t messages_ = 0;                           // between stages, before this step
  std::vector<ScheduledPass> passes_;
  std::vector<std::unique_ptr<MicroBatch>> micro_batches_;
};

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
  const auto forward = [&](int64_t i, SuspensionHooks& hooks) {
    const ForwardScope scope(options);
    auto training = std::make_unique<Training>(leaves(running), trained, of_part);
    Tree shadow = running;
    std::vector<Array> given = training->shadows();
    const BareArrays bare = bare_arrays(shadow);
    set_values(bare.arrays, given);
    const auto keep_buffers = [&] {
      if constexpr (!std::is_const_v<Model>)
        write_back(running, training->model(),
                   kept_after_call(training->model(), bare.structure, given, bare_arrays(shadow), "pipeline",
                                   /*settle=*/true),
                   shadow, "pipeline");
    };
    if constexpr (!std::is_const_v<Model>)
      hooks = {keep_buffers, [&] {
                 write_back(shadow, leaves(shadow), values_of(bare_arrays(running).arrays), running, "pipeline");
                 given = values_of(bare.arrays);
               }};
    Result result = part_loss(static_cast<Model&>(shadow), micro_batch(batch, blocks, i, n)...);
    training->pause();
    keep_buffers();
    hooks = {};
    parts[i] = {std::move(training), std::move(result)};
  };
  const auto backward = [&](int64_t i) {
    std::unique_ptr<Training> training = std::move(parts[i].training);
    training->resume();
    Tree gradient = model;
    set_values(bare_arrays(gradient).arrays, training->gradients(loss_in(*parts[i].result)));
    training.reset();
    parts[i].result = drop_graph_of(*std::move(parts[i].result));
    if (gradients)
      add(leaves(*gradients), leaves(gradient));
    else
      gradients = std::move(gradient);
  };
  PassRunner runner(options, leaves(model));
  for (const ScheduledPass& pass : runner.passes())
    runner.run(pass, [&forward, &backward, pass](SuspensionHooks& hooks) {
      pass.is_backward ? backward(pass.micro_batch) : forward(pass.micro_batch, hooks);
    });
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
// Under interleaved with v virtual stages, placed by the rule {"layers", interleaved("pipe", v)}, stages idle for about
// (S - 1) / (v * n + S - 1) of the time (Narayanan et al., "Efficient Large-Scale Language Model Training on GPU
// Clusters Using Megatron-LM", 2021, section 2.2). A micro-batch's gradients are added to the sum when its backward
// pass has ended on all virtual stages, so a stage keeps the gradients of up to S micro-batches.
// Stages that are virtual devices of one process run one after another.
// Errors, in addition to those of accumulate_gradients
//   invalid_argument: num_micro_batches < 1; under one_f_one_b and interleaved, an activation that goes back to an
//     earlier stage; under interleaved, a remat over several stages
//   invalid_argument: num_virtual_stages below 1, above 1 for another schedule, or different from the layers' rule
//   inconsistent: an earlier step ended with an exception after stages in several processes had exchanged activations
//   no_gradient: a call inside value_and_grad, with stages in several processes
//   not_divisible: under interleaved, num_micro_batches that is not a multiple of the number of stages
template <class F>
auto pipeline(F loss_fn, PipelineOptions options, Filter trained, GradientOptions gradients = {},
              std::source_location where = std::source_location::current()) {
  detail::check_options(options);
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
