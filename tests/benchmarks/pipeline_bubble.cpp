// Measures the bubble of a pipeline: how much of a step its stages wait, for each schedule and number of micro-batches.
//
// Run it with one process per stage and one thread each:
//   TESSERA_CPU_THREADS=1 tests/processes/start.sh 2 build/release/tests/benchmarks/pipeline_bubble
// Arguments: the layers, their width, the rows of a micro-batch, the rounds, and milliseconds. If these are above 0, a
// layer sleeps that long in its forward pass, and twice as long in its backward pass, instead of computing. If other
// programs keep the cores busy, only sleeping shows a bubble: a computing process gets the core of a waiting one.
//
// A micro-batch costs the stage's time c, and a step of M micro-batches takes M * c plus the bubble. c is the slope of
// the time over M. So other costs of a step (its reductions) also count as bubble. The first micro-batch does not add
// gradients; this saves little with this number of rows. Ideal is (S - 1) / (v * M + S - 1). All numbers of
// micro-batches alternate, and the minimum time of each counts.
#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <thread>

#include "nn/layers/mlp.h"
#include "nn/placement/filter_shard.h"
#include "nn/transformations/pipeline.h"
#include "sharding/operations.h"
#include "sharding/operations/define_operation.h"
#include "sharding/random/random.h"
#include "sharding/redistribution/device_put.h"
#include "sharding/runtime/processes.h"

namespace {

using namespace tessera;

int64_t sleep_ms = 0;

void sleep_for(int64_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// w has no data if the stage belongs to another process.
const auto sleeping = define_operation("sleeping", "*", [](const at::Tensor& x, const at::Tensor& w) {
  at::Tensor y = x * w;
  if (y.is_meta()) return y;
  sleep_for(sleep_ms);
  y.register_hook([](const at::Tensor&) { sleep_for(2 * sleep_ms); });
  return y;
});

// All layers do the same work: because of `shift`, the first layer also has a gradient with respect to its input.
struct Layer {
  nn::Param shift;
  nn::Mlp mlp;

  static Layer init(const Key& key, const Axis& embed, const Axis& hidden) {
    return {.shift = {zeros({embed.size}), {embed}}, .mlp = nn::Mlp::init(key, embed, hidden)};
  }
  Array operator()(const Array& x) const { return sleep_ms > 0 ? sleeping(x, shift.value) : x + mlp(x + shift.value); }
};

struct Model {
  std::vector<Layer> layers;

  static Model init(int64_t depth, int64_t width) {
    Model model;
    for (const Key& key : split(Key(0), depth))
      model.layers.push_back(Layer::init(key, {"embed", width}, {"hidden", 4 * width}));
    return model;
  }
  Array operator()(Array x) const {
    for (const Layer& layer : layers) x = layer(x);
    return x;
  }
};

Array loss_of(const Model& model, const Array& x) { return mean(square(model(x))); }

double seconds_of(const Model& model, const Array& x, const nn::PipelineOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  nn::pipeline(loss_of, options)(model, x).first.item<float>();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

int main(int argc, char** argv) {
  initialize();
  const auto argument = [&](int i, int64_t otherwise) { return argc > i ? std::atoll(argv[i]) : otherwise; };
  const int64_t depth = argument(1, 8), width = argument(2, 256), rows = argument(3, 1024), rounds = argument(4, 7);
  sleep_ms = argument(5, 0);
  const int64_t stages = process_count();
  const std::vector<int64_t> numbers{2, 4, 8, 16};
  for (const nn::PipelineSchedule schedule :
       {nn::PipelineSchedule::gpipe, nn::PipelineSchedule::one_f_one_b, nn::PipelineSchedule::interleaved}) {
    const int64_t v = schedule == nn::PipelineSchedule::interleaved ? 2 : 1;
    const MeshRules mesh_rules(
        make_mesh({{"pipe", stages}}),
        {{"layers", interleaved("pipe", v)}, {"embed", replicated}, {"hidden", replicated}, {"batch", replicated}});
    const Model model = nn::filter_shard(Model::init(depth, width), mesh_rules);
    std::map<int64_t, double> least;
    for (int64_t round = 0; round <= rounds; ++round)
      for (const int64_t n : numbers) {
        const Array x = device_put(normal(Key(1), {n * rows, width}), NamedSharding(mesh_rules.mesh(), P{}));
        const double seconds = seconds_of(model, x, {n, schedule, v});
        if (round > 0) least[n] = least.contains(n) ? std::min(least[n], seconds) : seconds;
      }
    const double each = (least[16] - least[4]) / 12;
    if (process_index() > 0) continue;
    std::printf("%s, %lld stages, %.2f ms a micro-batch and stage\n", std::string(name_of(schedule)).c_str(),
                static_cast<long long>(stages), each * 1e3);
    for (const int64_t n : numbers) {
      const double ideal = static_cast<double>(stages - 1) / static_cast<double>(v * n + stages - 1);
      const double bubble = 1 - static_cast<double>(n) * each / least[n];
      std::printf("  %2lld micro-batches: %7.2f ms, bubble %.3f, ideal %.3f\n", static_cast<long long>(n),
                  least[n] * 1e3, bubble, ideal);
    }
  }
}
