// compare_meshes: memory, communication and predicted time of one step on several meshes, without any hardware.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "nn/placement/table.h"
#include "nn/report/step_forecast.h"
#include "sharding/placement/mesh.h"

namespace tessera::nn {

// Forecasts of several meshes, one column per mesh.
class MeshComparison {
 public:
  explicit MeshComparison(std::vector<StepForecast> steps) : steps_(std::move(steps)) {}

  const std::vector<StepForecast>& steps() const& { return steps_; }
  std::vector<StepForecast> steps() && { return std::move(steps_); }

  // Returns aligned columns.
  std::string to_text() const;
  std::string to_markdown() const;
  // Returns {"meshes": [{"mesh": {axis: size}, "devices", "error" (null or text), "bytes": {name: n, "activations",
  // "peak"}, "flops", "calls", "collectives": [{"kind", "axes", "count", "bytes", "seconds"}], "compute_seconds",
  // "communication_seconds", "hidden_seconds", "bubble_seconds", "seconds"}, ...]}
  std::string to_json() const;

 private:
  std::vector<StepForecast> steps_;
};

// Runs `step` on an abstract mesh with the axes of each of these meshes, and predicts its time. A step that gathers
// weights runs twice, because it gathers in the order of the previous step:
//   const auto step = [&](const Mesh& mesh) {
//     const MeshRules mesh_rules{mesh, rules, {.missing_axes = MissingAxes::ok}};
//     auto model = nn::filter_shard(Mlp::init(Key(0), {"embed", 512}, {"hidden", 2048}), mesh_rules);
//     auto optimizer = optim::Optimizer(model, optim::adamw({.learning_rate = 3e-4}));
//     const Batch batch = data::from_process_local(shapes, mesh_rules);    // zeros(...): no memory
//     const auto [loss, grads] = nn::value_and_grad(mse)(model, batch);
//     optimizer.update(model, grads);
//     return nn::placement_table(nn::named("model", model, "gradients", grads, "optimizer", optimizer));
//   };
//   const MeshOptions devices{.abstract = true};
//   std::cout << nn::compare_meshes(step, {make_mesh({{"batch", 4}, {"model", 2}}, devices),
//                                          make_mesh({{"batch", 8}}, devices)});
// For a mesh of real devices, the forecast uses its real processes. Devices of one process communicate without buffers,
// and gather weights at their first use. Each device of an abstract mesh has its own process, unless
// MeshOptions::num_processes is set. The time is the sum of
//   operations / flops_per_second
//   2 * bytes / memory_bytes_per_second, if known: all new arrays and the arrays at rest are written and read once
//   call_seconds for each operation
//   for each collective of n devices in a ring, with b bytes, speed s and latency l:
//   all_reduce          2 (n - 1) (b / n / s + l)
//   all_gather          (n - 1) (b / n / s + l)      b is the result
//   reduce_scatter      (n - 1) (b / s + l)          b is the result: one of n
//   all_to_all          (n - 1) (b / n / s + l)
//   others              b / s + l
// (Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005). Over several
// mesh axes the slowest link counts.
// Collectives that a program begins early overlap the computation until their result is needed. These are gathers of
// the next blocks' weights (GradientOptions::prefetch_groups), reduce-scatters of a block's gradients, and ZeRO-1's
// collectives of gradients and new parameters. A collective starts when the previous one ends, and the program waits
// when it needs a result that has not arrived. A block with c seconds of such communication therefore takes max(its
// computation, c). The fraction Hardware::overlap of the hidden time is free. All other collectives are waited for
// immediately, including sums of replicated gradients, which processes begin earlier.
// An Error of the step is shown in its mesh's column. Errors (invalid_argument): speeds that are not above 0, a latency
// below 0, or an overlap outside 0 to 1.
MeshComparison compare_meshes(const std::function<PlacementTable(const Mesh&)>& step, const std::vector<Mesh>& meshes,
                              const Hardware& hardware = {});

}  // namespace tessera::nn
