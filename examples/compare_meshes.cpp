// Forecasts one training step on many meshes without hardware: 8 devices, 64 devices, and Llama 70B on 512.
#include <fmt/format.h>
#include <sys/resource.h>

#include <cstdio>
#include <ctime>
#include <exception>
#include <iostream>
#include <vector>

#include <tessera/data/batches.h>
#include <tessera/nn/placement.h>
#include <tessera/nn/report.h>
#include <tessera/nn/transformations.h>
#include <tessera/optim/optimizer.h>
#include <tessera/sharding/accounting.h>
#include <tessera/sharding/operations.h>

#include "examples/transformer.h"

namespace {

using namespace tessera;

// Megatron's tensor parallelism over `model`, and data parallelism over `batch`.
const Rules tensor_parallel = examples::with_all_names(
    {{"batch", "batch"}, {"heads", "model"}, {"kv_heads", "model"}, {"mlp", "model"}, {"vocab", "model"}});
// The same, with all weights also sharded over `batch`.
const Rules fully_sharded = examples::with_all_names({{"batch", "batch"},
                                                      {"heads", "model"},
                                                      {"kv_heads", "model"},
                                                      {"mlp", "model"},
                                                      {"vocab", "model"},
                                                      {"embed", "batch"}});

// One training step, written as for real devices.
template <class Model, class Loss>
nn::PlacementTable train_step(const Model& recipe, const Loss& loss_fn, const data::TokenBatch& local,
                              const MeshRules& mesh_rules) {
  auto model = nn::filter_shard(recipe, mesh_rules);
  auto optimizer =
      optim::Optimizer(model, optim::chain(optim::clip_by_global_norm(1.0), optim::adamw({.learning_rate = 3e-4})));
  const auto batch = data::from_process_local(local, mesh_rules);
  const auto [loss, grads] = nn::value_and_grad(loss_fn)(model, batch);
  optimizer.update(model, grads);
  return nn::placement_table(nn::named("model", model, "gradients", grads, "optimizer", optimizer));
}

Mesh grid(int64_t batch, int64_t model) { return make_mesh({{"batch", batch}, {"model", model}}, {.abstract = true}); }

// Compares meshes for a small decoder. Large batches favor one axis, large layers the other.
void compare(const char* title, const examples::GptConfig& config, int64_t rows, const std::vector<Mesh>& meshes) {
  const auto step = [&](const Mesh& mesh) {
    return train_step(examples::Gpt::init(Key(0), config), examples::next_token_loss<examples::Gpt, data::TokenBatch>,
                      examples::empty_rows(rows, config.seq), {mesh, tensor_parallel});
  };
  std::cout << title << "\n\n" << nn::compare_meshes(step, meshes) << '\n';
}

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

double megabytes_resident() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

// Forecasts the largest shape of Llama 2 and 3 in mixed precision, with activations of blocks recomputed (remat).
void forecast_llama() {
  const double start = processor_seconds();
  auto llama = nn::CausalLM::init(Key(0), examples::llama_70b());
  llama.remat = true;
  const auto step = [&](const Mesh& mesh) {
    return train_step(llama, examples::next_token_loss_in<nn::CausalLM, data::TokenBatch>(bfloat16),
                      examples::empty_rows(512, 4096), {mesh, fully_sharded});
  };
  const nn::MeshComparison comparison = nn::compare_meshes(
      step, {grid(64, 8)}, {.flops_per_second = 400e12, .links = {{"model", {.bytes_per_second = 450e9}}}});
  std::cout << "Llama 70B, 512 sequences of 4096 tokens, weights over both axes\n\n" << comparison << '\n';
  std::printf("made in %.1f s of one processor, with %.0f MB\n", processor_seconds() - start, megabytes_resident());
}

}  // namespace

int main() try {
  compare("Eight devices: 64 sequences of 512 tokens, embed 1024",
          {.vocab = 32000, .embed = 1024, .heads = 16, .layers = 4, .seq = 512, .mlp = 4096}, 64,
          {grid(4, 2), grid(2, 4), grid(1, 8), grid(8, 1)});
  compare("Sixty-four devices: 512 sequences of 1024 tokens, embed 4096",
          {.vocab = 32768, .embed = 4096, .heads = 64, .layers = 4, .seq = 1024, .mlp = 16384}, 512,
          {grid(64, 1), grid(32, 2), grid(16, 4), grid(8, 8), grid(1, 64)});
  forecast_llama();
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", error.what());
  return 1;
}
