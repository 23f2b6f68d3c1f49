// The code of docs/models.md.
#include <cstdio>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include <tessera/data/batches.h>
#include <tessera/data/loader.h>
#include <tessera/data/text.h>
#include <tessera/nn/models.h>
#include <tessera/nn/placement.h>
#include <tessera/nn/transformations.h>
#include <tessera/optim/optimizer.h>
#include <tessera/sharding/operations.h>
#include <tessera/sharding/placement.h>

using namespace tessera;

namespace shown {

void from_a_folder() {
  const Mesh mesh = make_mesh({{"fsdp", 4}, {"model", 2}});
  const MeshRules mesh_rules{mesh, nn::decoder_rules(mesh)};
  auto model = nn::from_pretrained("Llama-3.2-1B", mesh_rules, {.dtype = bfloat16});
  std::cout << nn::placement_table(model);
}

void from_nothing(const Mesh& mesh) {
  const MeshRules mesh_rules{mesh, nn::decoder_rules(mesh)};
  nn::DecoderConfig config = nn::config_of_family("qwen3", {.vocab_size = 32000,
                                                            .hidden_size = 512,
                                                            .num_hidden_layers = 8,
                                                            .num_attention_heads = 8,
                                                            .num_key_value_heads = 2,
                                                            .head_dim = 64,
                                                            .intermediate_size = 1408});
  config.tie_word_embeddings = true;
  auto model = nn::filter_shard(nn::CausalLM::init(Key(0), config), mesh_rules);
}

void documents(nn::CausalLM& model, const MeshRules& mesh_rules, data::Dataset<std::vector<int32_t>> documents) {
  const auto rows =
      documents.shuffle(0).repeat().pack({.length = 1025, .split_long = true, .max_sequences_per_bin = 64});
  auto loader = data::shard_batches(data::Loader(rows, data::PackedTokensBatcher{.max_segments = 65},
                                                 {.batch_size = 32, .shard = data::ShardByProcess(mesh_rules)}),
                                    mesh_rules);

  const auto loss = [](const nn::CausalLM& model, const data::PackedTokens& batch) {
    return model.loss(batch.inputs, batch.targets, batch.weights,
                      {.positions = batch.positions, .segment_starts = batch.segment_starts});
  };
  auto optimizer = optim::Optimizer(model, optim::adamw({.learning_rate = 1e-5}));
  for (const data::PackedTokens& batch : loader) {
    const auto [mean, grads] = nn::value_and_grad(loss)(model, batch);
    optimizer.update(model, grads);
  }
}

void changes(nn::CausalLM model, const data::PackedTokens& batch,
             const std::function<Array(const nn::CausalLM&, const data::PackedTokens&)>& loss) {
  model = nn::with_lora(Key(1), model, {.rank = 8});
  const nn::Filter trained = nn::by_path("**.lora.**");
  auto optimizer = optim::Optimizer(model, optim::masked(optim::adamw({.learning_rate = 1e-4}), trained));
  const auto [mean, grads] = nn::value_and_grad(loss, trained)(model, batch);
  optimizer.update(model, grads);
  nn::save_pretrained("tuned", nn::merge_lora(model), "Llama-3.2-1B");
  nn::save_gguf("tuned.gguf", nn::merge_lora(model), {.dtype = bfloat16, .tokenizer = "Llama-3.2-1B"});
}

void text(const nn::CausalLM& model) {
  const auto tokenizer = data::Tokenizer::open("Llama-3.2-1B");
  const auto written =
      nn::generate(model, Key(0), {tokenizer.encode("Once upon a time").ids, tokenizer.encode("2 +").ids},
                   {.max_new_tokens = 64, .sampling = {.temperature = 0.8, .top_p = 0.95}});
  for (const auto& ids : written) std::cout << tokenizer.decode(ids) << '\n';
}

}  // namespace shown

int main() {
  const Mesh mesh = make_mesh({{"fsdp", 4}, {"model", 2}});
  const nn::CausalLM model = nn::filter_shard(nn::CausalLM::init(Key(0), {}), MeshRules{mesh, nn::decoder_rules(mesh)});
  const std::string table = nn::placement_table(model).to_text();
  std::fwrite(table.data(), 1, table.size(), stdout);
}
