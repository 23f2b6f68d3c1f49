// The strategies that the library suggests for a small decoder, and for Llama 2 7B on 64 and on 512 devices.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <iostream>

#include <tessera/data/batches.h>
#include <tessera/nn/models.h>
#include <tessera/nn/placement.h>
#include <tessera/nn/report.h>
#include <tessera/nn/transformations.h>
#include <tessera/optim/optimizer.h>
#include <tessera/sharding/operations.h>

#include "examples/transformer.h"

namespace {

using namespace tessera;

// One training step, written as for real devices. The mesh rules place the model; `gradients` specify the sharding of
// gradients and of the optimizer's state.
template <class Model, class Loss>
auto training_step(const Model& recipe, const Loss& loss_fn, const data::TokenBatch& rows) {
  return [=](const MeshRules& mesh_rules, const GradientOptions& gradients) {
    auto model = nn::filter_shard(recipe, mesh_rules);
    auto optimizer = optim::Optimizer(model, optim::adamw({.learning_rate = 3e-4}),
                                      {.shard_state_over = gradients.shard_gradients_over});
    const auto batch = data::from_process_local(rows, mesh_rules);
    const auto [loss, grads] = nn::value_and_grad(loss_fn, gradients)(model, batch);
    optimizer.update(model, grads);
    return nn::placement_table(nn::named("model", model, "gradients", grads, "optimizer", optimizer));
  };
}

template <class Step>
void suggest(const char* title, const Step& step, int64_t devices, const nn::Hardware& hardware, int64_t memory,
             const nn::SuggestStrategiesOptions& options = {}) {
  const auto start = std::chrono::steady_clock::now();
  const nn::StrategySuggestions found = nn::suggest_strategies(step, devices, hardware, memory, options);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  std::cout << title << "\n" << found << std::flush;
  std::printf("found in %.1f s\n\n", taken.count());
}

void suggest_for_small_decoder() {
  const examples::GptConfig config{.vocab = 8192, .embed = 256, .heads = 8, .layers = 2, .seq = 128, .mlp = 1024};
  const auto step =
      training_step(examples::Gpt::init(Key(0), config), examples::next_token_loss<examples::Gpt, data::TokenBatch>,
                    examples::empty_rows(64, config.seq));
  suggest("A small decoder on eight devices", step, 8, {}, 256'000'000);
}

// Uses mixed precision and remat. Groups of eight devices have the fast link.
void suggest_for_llama() {
  nn::CausalLM llama = nn::CausalLM::init(Key(0), {.vocab_size = 32000,
                                                   .hidden_size = 4096,
                                                   .num_hidden_layers = 32,
                                                   .num_attention_heads = 32,
                                                   .num_key_value_heads = 32,
                                                   .head_dim = 128,
                                                   .intermediate_size = 11008,
                                                   .max_position_embeddings = 4096});
  llama.remat = true;
  const auto loss = [](const nn::CausalLM& model, const data::TokenBatch& batch) {
    return nn::cast(model, bfloat16).loss(batch.inputs, batch.targets);
  };
  const nn::Hardware hardware{.flops_per_second = 400e12, .links = {{"model", {.bytes_per_second = 450e9}}}};
  for (const int64_t devices : {64, 512})
    suggest(fmt::format("Llama 2 7B, {} sequences of 4096 tokens", 4 * devices).c_str(),
            training_step(llama, loss, examples::empty_rows(4 * devices, 4096)), devices, hardware, 40'000'000'000,
            {.max_along = {{"model", 8}}});
}

}  // namespace

int main() try {
  suggest_for_small_decoder();
  suggest_for_llama();
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", error.what());
  return 1;
}
