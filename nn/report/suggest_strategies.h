// suggest_strategies: the meshes and rules on which a step is fastest among those that fit, found without any hardware.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "nn/placement/table.h"
#include "nn/report/step_forecast.h"
#include "nn/transformations/pipeline.h"
#include "sharding/array/gradient_options.h"
#include "sharding/placement/mesh_rules.h"

namespace tessera::nn {

// Places a model and a batch by the mesh rules, trains once, and returns the table of its arrays.
using StrategyStep = std::function<PlacementTable(const MeshRules&)>;
// The same for a step that also takes GradientOptions: for value_and_grad, and for an Optimizer
// {.shard_state_over = gradients.shard_gradients_over}.
using GradientStep = std::function<PlacementTable(const MeshRules&, const GradientOptions&)>;
// The same for a step that also takes its micro-batches and their schedule, for nn::pipeline.
using PipelineStep = std::function<PlacementTable(const MeshRules&, const GradientOptions&, const PipelineOptions&)>;

// How long suggest_strategies searches, and where.
struct SuggestStrategiesOptions {
  int64_t max_steps = 64;     // runs of the step, at least 3; what is not tried by then is not in the result
  size_t max_strategies = 5;  // in the result
  // By what part a strategy has to be slower than the one before it in the result, so that a prediction, which is right
  // to a tenth or so, can tell them apart; what differs by less is not in the result. 0: all that fit are.
  double min_relative_gap = 0.1;
  // The part of the memory that a strategy has to leave free, since its peak is right to a tenth.
  double memory_headroom = 0.1;
  // The most devices along a mesh axis, as {{"model", 8}} where eight have a fast link. Axes are "pipe", "replica",
  // "data", "model"; those that are not here may have all devices.
  std::map<std::string, int64_t> max_along = {};
  // How many processes the devices belong to, equally many to each, which share what they hold to communicate; 0: each
  // device has its own.
  int num_processes = 0;
};

// One strategy that was tried.
struct SuggestedStrategy {
  std::string name;            // fully sharded x tensor parallel
  std::vector<MeshAxis> mesh;  // data=8, model=4
  Rules rules;                 // of every name that the step has
  GradientOptions gradients;   // .shard_gradients_over and .reshard_after_forward
  PipelineOptions pipeline;    // of one micro-batch: no rule puts blocks on stages
  StepForecast forecast;       // peak memory, collectives and times of a device
  std::string why;             // one sentence: why it beats the next

  // The mesh on devices, with these rules. Errors: those of make_mesh.
  MeshRules mesh_rules(const MeshOptions& options = {}) const { return MeshRules(make_mesh(mesh, options), rules); }
};

// The result of a search.
class StrategySuggestions {
 public:
  struct Search {
    int64_t num_devices = 1, memory = 0;   // bytes of each
    double memory_headroom = 0;            // of them
    int64_t num_tried = 0, num_steps = 0;  // strategies, and runs of the step for them
    bool is_complete = true;               // false: max_steps ended it
    int64_t num_skipped = 0;               // strategies that were not run, because their arrays at rest are too large
  };
  StrategySuggestions(std::vector<SuggestedStrategy> strategies, std::vector<SuggestedStrategy> too_large,
                      std::vector<SuggestedStrategy> failed, Search search)
      : strategies_(std::move(strategies)),
        too_large_(std::move(too_large)),
        failed_(std::move(failed)),
        search_(search) {}

  // Those that fit, the fastest first, each slower than the one before by SuggestStrategiesOptions::min_relative_gap.
  // If times on one mesh differ by less than 1 %, the strategy with the lowest peak is chosen.
  const std::vector<SuggestedStrategy>& strategies() const& { return strategies_; }
  std::vector<SuggestedStrategy> strategies() && { return std::move(strategies_); }
  // Those whose peak is larger than the memory without what is kept free, the smallest first.
  const std::vector<SuggestedStrategy>& too_large() const& { return too_large_; }
  std::vector<SuggestedStrategy> too_large() && { return std::move(too_large_); }
  // Those on which the step is an Error, which is in forecast.error.
  const std::vector<SuggestedStrategy>& failed() const& { return failed_; }
  std::vector<SuggestedStrategy> failed() && { return std::move(failed_); }
  const Search& search() const { return search_; }

  // The first. Error (invalid_argument) if none fits, with the smallest memory of those that were tried.
  const SuggestedStrategy& best() const;

  // A line for each strategy, then for each its rules, collectives and why it beats the next.
  std::string to_text() const;
  std::string to_markdown() const;
  // {"devices", "memory", "steps", "complete", "skipped", "strategies": [{"name", "mesh": {axis: size}, "rules": {name:
  // [axis, ...]}, "shard_state_over": [axis, ...], "reshard_after_forward", "micro_batches", "schedule" (null without
  // stages), "why", "forecast": as in MeshComparison}, ...], "too_large", "failed": lists of the same}
  std::string to_json() const;

 private:
  std::string why_none() const;

  std::vector<SuggestedStrategy> strategies_, too_large_, failed_;
  Search search_;
};

// Prints to_text().
std::ostream& operator<<(std::ostream& out, const StrategySuggestions& suggestions);

// Searches the strategies of so many devices on which a device takes at most `memory` bytes, by abstract runs of the
// step:
//   const auto step = [&](const MeshRules& mesh_rules, const GradientOptions& gradients) {
//     auto model = nn::filter_shard(Mlp::init(Key(0), {"embed", 512}, {"hidden", 2048}), mesh_rules);
//     auto optimizer = optim::Optimizer(model, optim::adamw({.learning_rate = 3e-4}), {.shard_state_over =
//     gradients.shard_gradients_over}); const Batch batch = data::from_process_local(shapes, mesh_rules);    //
//     zeros(...): no memory const auto [loss, grads] = nn::value_and_grad(mse, gradients)(model, batch);
//     optimizer.update(model, grads);
//     return nn::placement_table(nn::named("model", model, "gradients", grads, "optimizer", optimizer));
//   };
//   const nn::StrategySuggestions found = nn::suggest_strategies(step, 64, hardware, 80'000'000'000);
//   std::cout << found;
//   const MeshRules mesh_rules = found.best().mesh_rules();
// A first run without rules finds the step's logical axes and the role of each: the rows of a batch, the stream that
// most matrices have a side of (embed), their other dims (heads, mlp, vocab), the sequence of activations. The search
// makes rules of them for meshes of "replica", "data" and "model": data parallel, ZeRO-1, fully sharded (gathered at
// each use, or once a step) and hybrid sharded, each alone or with layers, layers and sequence, or the sequence sharded
// over "model". It leaves a family if a wider "model" is slower than a strategy that fits. Strategies whose arrays at
// rest are too large are not run. The best are refined: single names left whole, replicas. The same arguments give the
// same result. Times are as compare_meshes predicts them; memory is the peak that Forecast has. A strategy on which the
// step is an Error is in failed(). Errors: the step's without rules; invalid_argument for no devices, no memory,
// options out of range, hardware that compare_meshes refuses, a step that places nothing by names.
StrategySuggestions suggest_strategies(const StrategyStep& step, int64_t devices, const Hardware& hardware,
                                       int64_t memory, const SuggestStrategiesOptions& options = {});
// With a step that takes GradientOptions, which is offered ZeRO-1 and weights that are gathered once a step, too.
StrategySuggestions suggest_strategies(const GradientStep& step, int64_t devices, const Hardware& hardware,
                                       int64_t memory, const SuggestStrategiesOptions& options = {});
// With one that gives PipelineOptions to nn::pipeline. Where it has a vector of blocks whose length the stages divide,
// it is offered pipelines as well, alone or with data parallel or ZeRO-1, and layers over "model": four micro-batches a
// stage, or as many as the rows allow, of the best half and twice as many, by one_f_one_b.
//   nn::pipeline(mse, pipeline, gradients)(model, batch)      // of one micro-batch: value_and_grad
StrategySuggestions suggest_strategies(const PipelineStep& step, int64_t devices, const Hardware& hardware,
                                       int64_t memory, const SuggestStrategiesOptions& options = {});

}  // namespace tessera::nn
