// Compares predictions of suggest_strategies with measurements for ten models: order, time and memory.
//
//   strategies [shared]                          virtual devices, each with its own copies, or with one for all
//   tests/processes/start.sh 2 strategies        two processes, which have half of the devices each
//   tests/processes/start.sh 4 strategies        four, for the models on four devices
// Forecasts are for the present number of processes.
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "data/batches/to_global.h"
#include "examples/transformer.h"
#include "nn/placement/filter_shard.h"
#include "nn/placement/table.h"
#include "nn/report/measure_hardware.h"
#include "nn/report/suggest_strategies.h"
#include "nn/transformations/value_and_grad.h"
#include "optim/optimizer.h"
#include "sharding/autodiff/weights/prefetch_schedule.h"
#include "sharding/runtime/processes.h"
#include "tests/benchmarks/timing.h"
#include "tests/examples/rows.h"

namespace {

using namespace tessera;
using benchmarks::seconds_of;

// ---- memory of the whole process, including its communication threads

std::atomic<int64_t> live{0}, peak{0};

class Counting : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    auto* block = new Block{c10::alloc_cpu(bytes), static_cast<int64_t>(bytes)};
    const int64_t now = live += block->bytes;
    for (int64_t most = peak; most < now && !peak.compare_exchange_weak(most, now);) {
    }
    return {block->data, block, &free, c10::Device(c10::kCPU)};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  struct Block {
    void* data;
    int64_t bytes;
  };
  static void free(void* pointer) {
    auto* block = static_cast<Block*>(pointer);
    live -= block->bytes;
    c10::free_cpu(block->data);
    delete block;
  }
};

bool has_private_replicas = true;

MeshOptions mesh_options() { return {.private_replicas = has_private_replicas}; }

// Trains a model with one strategy.
class Run {
 public:
  virtual ~Run() = default;
  virtual void step() = 0;
};

template <class Model, class Optimizer, class Loss>
class RunOf : public Run {
 public:
  RunOf(Model model, Optimizer optimizer, Loss loss, data::TokenBatch batch, GradientOptions gradients)
      : model_(std::move(model)),
        optimizer_(std::move(optimizer)),
        loss_(std::move(loss)),
        batch_(std::move(batch)),
        gradients_(std::move(gradients)) {}

  void step() override {
    const auto [loss, grads] = nn::value_and_grad(loss_, gradients_)(model_, batch_);
    optimizer_.update(model_, grads);
    gather(loss).template item<float>();
  }

 private:
  Model model_;
  Optimizer optimizer_;
  Loss loss_;
  data::TokenBatch batch_;
  GradientOptions gradients_;
};

struct Size {
  int64_t rows, seq;
};

// Returns this process's rows: all, unless the mesh rules give each process different ones.
data::TokenBatch rows_of(const Size& size, const MeshRules& mesh_rules) {
  const data::ShardByProcess shard(mesh_rules);
  return data::from_process_local(examples::counted_rows(size.rows / shard.count, size.seq), mesh_rules);
}

template <class Model>
auto make_run(const Model& recipe, const MeshRules& mesh_rules, const GradientOptions& gradients, const Size& size) {
  auto model = nn::filter_shard(recipe, mesh_rules);
  auto optimizer = optim::Optimizer(model, optim::adamw({.learning_rate = 3e-4}),
                                    {.shard_state_over = gradients.shard_gradients_over});
  const auto loss = examples::next_token_loss<Model, data::TokenBatch>;
  return RunOf<Model, decltype(optimizer), decltype(+loss)>(model, std::move(optimizer), loss,
                                                            rows_of(size, mesh_rules), gradients);
}

template <class Model>
nn::PlacementTable abstract_step(const Model& recipe, const MeshRules& mesh_rules, const GradientOptions& gradients,
                                 const Size& size) {
  auto model = nn::filter_shard(recipe, mesh_rules);
  auto optimizer = optim::Optimizer(model, optim::adamw({.learning_rate = 3e-4}),
                                    {.shard_state_over = gradients.shard_gradients_over});
  const auto batch = data::from_process_local(examples::counted_rows(size.rows, size.seq), mesh_rules);
  const auto [loss, grads] =
      nn::value_and_grad(examples::next_token_loss<Model, data::TokenBatch>, gradients)(model, batch);
  optimizer.update(model, grads);
  return nn::placement_table(nn::named("model", model, "gradients", grads, "optimizer", optimizer));
}

struct Measured {
  double seconds = 0;  // minimum over alternating steps
  double peak = 0;     // bytes of one device
};

// Returns a device's peak from the creation of the model to the end of a step, as a Forecast counts it. The step uses
// the previous step's gather order. The result is the peak of all devices of a process, divided by their number.
template <class Model>
double peak_of(const Model& recipe, const nn::SuggestedStrategy& s, const Size& size) {
  const MeshRules mesh_rules = s.mesh_rules(mesh_options());
  make_run(recipe, mesh_rules, s.gradients, size).step();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // its new parameters may still be gathered
  const int64_t before = live;
  peak = before;
  auto run = make_run(recipe, mesh_rules, s.gradients, size);
  run.step(), run.step();
  return static_cast<double>(peak - before) / static_cast<double>(mesh_rules.mesh().local_devices().size());
}

template <class Model>
std::vector<Measured> measure(const Model& recipe, const std::vector<nn::SuggestedStrategy>& strategies,
                              const Size& size) {
  std::vector<std::unique_ptr<Run>> runs;
  std::vector<std::vector<double>> seconds(strategies.size());
  std::vector<Measured> measured;
  for (const auto& s : strategies) measured.push_back({.peak = peak_of(recipe, s, size)});
  for (const auto& s : strategies) {
    auto run = make_run(recipe, s.mesh_rules(mesh_options()), s.gradients, size);
    runs.push_back(std::make_unique<decltype(run)>(std::move(run)));
  }
  constexpr int warm_up = 2, rounds = 25;
  for (int round = 0; round < warm_up + rounds; ++round)
    for (size_t k = 0; k < runs.size(); ++k) {
      const size_t i = (k + static_cast<size_t>(round)) % runs.size();
      const double taken = seconds_of([&] { runs[i]->step(); });
      if (round >= warm_up) seconds[i].push_back(taken);
    }
  for (size_t i = 0; i < runs.size(); ++i)
    measured[i].seconds = *std::min_element(seconds[i].begin(), seconds[i].end());
  return measured;
}

bool is_faster(const Measured& a, const Measured& b) { return a.seconds < b.seconds; }

struct Score {
  int cases = 0, in_order = 0, first = 0, strategies = 0, within_ten = 0;
};

const nn::Hardware& hardware_of(int64_t devices) {
  static std::map<int64_t, nn::Hardware> known;
  const auto found = known.find(devices);
  if (found != known.end()) return found->second;
  const Mesh mesh = make_mesh({{"data", devices}}, mesh_options());
  nn::Hardware hardware = nn::measure_hardware(mesh);
  hardware.links.clear();
  if (process_index() == 0)
    std::printf("hardware of %d devices: %s\n", static_cast<int>(devices), nn::to_json(hardware).c_str());
  return known.emplace(devices, hardware).first->second;
}

std::string words_of(const std::vector<MeshAxis>& mesh) {
  std::string text;
  for (const MeshAxis& axis : mesh) text += (text.empty() ? "" : ", ") + axis.name + "=" + std::to_string(axis.size);
  return text;
}

template <class Model>
void try_case(const char* name, const Model& recipe, int64_t devices, const Size& size, Score& score) {
  if (devices < process_count()) return;
  const auto step = [&](const MeshRules& mesh_rules, const GradientOptions& gradients) {
    return abstract_step(recipe, mesh_rules, gradients, size);
  };
  const auto found = nn::suggest_strategies(step, devices, hardware_of(devices), int64_t{1} << 40,
                                            {.max_strategies = 3, .num_processes = process_count()});
  const std::vector<nn::SuggestedStrategy>& strategies = found.strategies();
  const std::vector<Measured> measured = measure(recipe, strategies, size);
  const bool is_in_order = std::is_sorted(measured.begin(), measured.end(), is_faster);
  score.cases += 1;
  score.in_order += is_in_order;
  score.first += std::min_element(measured.begin(), measured.end(), is_faster) == measured.begin();
  if (process_index() == 0)
    std::printf("%s, %d devices: the first %d are %s\n", name, static_cast<int>(devices),
                static_cast<int>(strategies.size()), is_in_order ? "in order" : "not in order");
  for (size_t i = 0; i < strategies.size(); ++i) {
    const nn::StepForecast& f = strategies[i].forecast;
    const double ratio = static_cast<double>(f.peak_bytes) / measured[i].peak;
    score.strategies += 1;
    score.within_ten += ratio > 0.9 && ratio < 1.1;
    if (process_index() == 0)
      std::printf("  %-22s %-50s predicted %8.2f ms, measured %8.2f ms; peak %10lld, measured %10.0f (%.3f)\n",
                  words_of(strategies[i].mesh).c_str(), strategies[i].name.c_str(), f.seconds() * 1e3,
                  measured[i].seconds * 1e3, static_cast<long long>(f.peak_bytes), measured[i].peak, ratio);
  }
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  using examples::Gpt;
  static Counting counting;
  c10::SetCPUAllocator(&counting, 100);
  return run_program([&] {
    has_private_replicas = argc < 2 || std::strcmp(argv[1], "shared") != 0;
    Score score;
    const auto gpt = [&](const char* name, const examples::GptConfig& config, int64_t devices, int64_t rows) {
      try_case(name, Gpt::init(Key(0), config), devices, {rows, config.seq}, score);
    };
    const auto llama = [&](const char* name, const nn::DecoderConfig& config, int64_t devices, const Size& size) {
      try_case(name, nn::CausalLM::init(Key(0), config), devices, size, score);
    };
    gpt("gpt, small", {.vocab = 256, .embed = 64, .heads = 8, .layers = 2, .seq = 32, .mlp = 256}, 2, 16);
    gpt("gpt, small", {.vocab = 256, .embed = 64, .heads = 8, .layers = 2, .seq = 32, .mlp = 256}, 4, 16);
    gpt("gpt, wide", {.vocab = 256, .embed = 256, .heads = 8, .layers = 2, .seq = 16, .mlp = 1024}, 2, 4);
    gpt("gpt, wide", {.vocab = 256, .embed = 256, .heads = 8, .layers = 2, .seq = 16, .mlp = 1024}, 4, 4);
    gpt("gpt, many words", {.vocab = 8192, .embed = 64, .heads = 4, .layers = 2, .seq = 16, .mlp = 128}, 2, 8);
    gpt("gpt, many rows", {.vocab = 256, .embed = 64, .heads = 8, .layers = 2, .seq = 64, .mlp = 256}, 2, 64);
    gpt("gpt, deep", {.vocab = 256, .embed = 64, .heads = 8, .layers = 8, .seq = 32, .mlp = 256}, 4, 8);
    const nn::DecoderConfig small{
        .num_attention_heads = 8, .num_key_value_heads = 4, .head_dim = 8, .tie_word_embeddings = true};
    const nn::DecoderConfig wide{.hidden_size = 256,
                                 .num_attention_heads = 8,
                                 .num_key_value_heads = 4,
                                 .head_dim = 32,
                                 .intermediate_size = 704,
                                 .tie_word_embeddings = true};
    llama("llama, small", small, 2, {16, 32});
    llama("llama, wide", wide, 2, {4, 16});
    llama("llama, long", small, 4, {4, 128});
    if (process_index() == 0)
      std::printf(
          "\nof %d: the first three in order %d, the first is the fastest %d; memory within 10 %% in %d of %d\n",
          score.cases, score.in_order, score.first, score.within_ten, score.strategies);
    return 0;
  });
}
