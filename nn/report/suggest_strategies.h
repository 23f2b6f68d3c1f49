// suggest_strategies: the fastest meshes and rules for a step among those that fit in memory, found without hardware.
#pragma once

#include <cstdint>
#include <functional>
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

// Function that places a model and a batch by the mesh rules, trains once, and returns the table of its arrays.
using StrategyStep = std::function<PlacementTable(const MeshRules&)>;
// Function that also takes GradientOptions, for value_and_grad and for an Optimizer {.shard_state_over =
// gradients.shard_gradients_over}.
using GradientStep = std::function<PlacementTable(const MeshRules&, const GradientOptions&)>;
// Function that also takes its micro-batches and their schedule, for nn::pipeline.
using PipelineStep = std::function<PlacementTable(const MeshRules&, const GradientOptions&, const PipelineOptions&)>;

// Limits of the search.
struct SuggestStrategiesOptions {
  int64_t max_steps = 64;  // runs of the step, at least 3; strategies that are not tried by then are not in the result
  size_t max_strategies = 5;  // maximum number of strategies in the result
  // Minimum fraction by which a strategy in the result must be slower than the previous one. Predictions are accurate
  // to about a tenth, so a smaller difference is not significant. 0: all strategies that fit are in the result.
  double min_relative_gap = 0.1;
  // Fraction of the memory that a strategy must leave free, because its predicted peak is accurate to a tenth.
  double memory_headroom = 0.1;
  // Maximum number of devices along a mesh axis, for example {{"model", 8}} if eight have a fast link. Axes are "pipe",
  // "replica", "data", "model"; axes that are not listed may have all devices.
  std::map<std::string, int64_t> max_along = {};
  // Number of processes that share the devices equally. Devices of one process communicate through shared memory. 0:
  // each device has its own process.
  int num_processes = 0;
};

// One strategy that was tried.
struct SuggestedStrategy {
  std::string name;            // fully sharded x tensor parallel
  std::vector<MeshAxis> mesh;  // data=8, model=4
  Rules rules;                 // for every name of the step
  GradientOptions gradients;   // .shard_gradients_over and .reshard_after_forward
  PipelineOptions pipeline;    // one micro-batch: no rule assigns blocks to stages
  StepForecast forecast;       // peak memory, collectives and times of a device
  std::string why;             // one sentence: why it is faster than the next

  // Returns the mesh on devices, with these rules. Errors: those of make_mesh.
  MeshRules mesh_rules(const MeshOptions& options = {}) const { return MeshRules(make_mesh(mesh, options), rules); }
};

// Result of a search.
class StrategySuggestions {
 public:
  struct Search {
    int64_t num_devices = 1, memory = 0;   // bytes per device
    double memory_headroom = 0;            // fraction of `memory`
    int64_t num_tried = 0, num_steps = 0;  // strategies, and runs of the step for them
    bool is_complete = true;               // false: stopped by max_steps
    int64_t num_skipped = 0;               // strategies that were not run, because their arrays at rest are too large
  };
  StrategySuggestions(std::vector<SuggestedStrategy> strategies, std::vector<SuggestedStrategy> too_large,
                      std::vector<SuggestedStrategy> failed, Search search)
      : strategies_(std::move(strategies)),
        too_large_(std::move(too_large)),
        failed_(std::move(failed)),
        search_(search) {}

  // Returns the strategies that fit, fastest first, each slower than the previous one by
  // SuggestStrategiesOptions::min_relative_gap. If times on one mesh differ by less than 1 %, only the strategy with
  // the lowest peak is returned.
  const std::vector<SuggestedStrategy>& strategies() const& { return strategies_; }
  std::vector<SuggestedStrategy> strategies() && { return std::move(strategies_); }
  // Returns the strategies whose peak exceeds the memory minus its headroom, smallest first.
  const std::vector<SuggestedStrategy>& too_large() const& { return too_large_; }
  std::vector<SuggestedStrategy> too_large() && { return std::move(too_large_); }
  // Returns the strategies on which the step throws; forecast.error has the message.
  const std::vector<SuggestedStrategy>& failed() const& { return failed_; }
  std::vector<SuggestedStrategy> failed() && { return std::move(failed_); }
  const Search& search() const { return search_; }

  // Returns the first strategy. Error (invalid_argument), with the smallest peak that was tried: none fits.
  const SuggestedStrategy& best() const;

  // Returns a line per strategy, followed by each strategy's rules, collectives and why it is faster than the next.
  std::string to_text() const;
  std::string to_markdown() const;
  // Returns {"devices", "memory", "steps", "complete", "skipped", "strategies": [{"name", "mesh": {axis: size},
  // "rules": {name: [axis, ...]}, "shard_state_over": [axis, ...], "reshard_after_forward", "micro_batches", "schedule"
  // (null without stages), "why", "forecast": as in MeshComparison}, ...], "too_large", "failed": lists of the same}
  std::string to_json() const;

 private:
  std::string why_none() const;

  std::vector<SuggestedStrategy> strategies_, too_large_, failed_;
  Search search_;
};

// Searches for the fastest strategies on `devices` devices that take at most `memory` bytes per device, by abstract
// runs of the step:
//   const auto step = [&](const MeshRules& mesh_rules, const GradientOptions& gradients) {
//     auto model = nn::filter_shard(Mlp::init(Key(0), {"embed", 512}, {"hidden", 2048}), mesh_rules);
//     auto optimizer = optim::Optimizer(model, optim::adamw({.learning_rate = 3e-4}),
//                                       {.shard_state_over = gradients.shard_gradients_over});
//     const Batch batch = data::from_process_local(shapes, mesh_rules);    // zeros(...): no memory
//     const auto [loss, grads] = nn::value_and_grad(mse, gradients)(model, batch);
//     optimizer.update(model, grads);
//     return nn::placement_table(nn::named("model", model, "gradients", grads, "optimizer", optimizer));
//   };
//   const nn::StrategySuggestions found = nn::suggest_strategies(step, 64, hardware, 80'000'000'000);
//   std::cout << found;
//   const MeshRules mesh_rules = found.best().mesh_rules();
// A first run without rules finds the step's logical axes and the role of each:
//   the rows of a batch
//   the stream, which most matrices have as one dimension (embed)
//   the other dimensions of matrices (heads, mlp, vocab)
//   the sequence of activations
// The search derives rules for meshes of "replica", "data" and "model": data parallel, ZeRO-1, fully sharded (gathered
// at each use, or once per step) and hybrid sharded. Each is tried alone and with layers, layers and sequence, or the
// sequence sharded over "model". The search of a family ends when a larger "model" is slower than a strategy that fits.
// Strategies whose arrays at rest are too large are not run. The best strategies are refined by replicating single
// names and by adding replicas. The same arguments give the same result.
// compare_meshes predicts the times; memory is Forecast's peak. A strategy on which the step throws is in failed().
// Errors, in addition to those of the step without rules (invalid_argument): no devices, no memory, options out of
// range, hardware that compare_meshes rejects, or a step that places nothing by names.
StrategySuggestions suggest_strategies(const StrategyStep& step, int64_t devices, const Hardware& hardware,
                                       int64_t memory, const SuggestStrategiesOptions& options = {});
// Does the same for a step that takes GradientOptions: also tries ZeRO-1 and weights that are gathered once per step.
StrategySuggestions suggest_strategies(const GradientStep& step, int64_t devices, const Hardware& hardware,
                                       int64_t memory, const SuggestStrategiesOptions& options = {});
// Does the same for a step that passes PipelineOptions to nn::pipeline. If the step has a vector of blocks whose length
// the stages divide, pipelines are also tried: alone, with data parallel or ZeRO-1, and with layers over "model". They
// use one_f_one_b with four micro-batches per stage, or as many as the rows allow; the best is also tried with half and
// twice as many.
//   nn::pipeline(mse, pipeline, gradients)(model, batch)      // with one micro-batch: value_and_grad
StrategySuggestions suggest_strategies(const PipelineStep& step, int64_t devices, const Hardware& hardware,
                                       int64_t memory, const SuggestStrategiesOptions& options = {});

}  // namespace tessera::nn
