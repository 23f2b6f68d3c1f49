// Data parallelism: the complete program of docs/strategies.md.
#include <iostream>

#include <tessera/tessera.h>

using namespace tessera;

struct Batch {
  NamedArray ids{"batch", "stream_seq"}, labels{"batch", "stream_seq"};
};

WeightedSum loss_of(const nn::CausalLM& model, const Batch& batch) { return model.loss(batch.ids, batch.labels); }

int main() {
  const Mesh mesh = make_mesh({{"data", 8}});
  const Rules rules{{"batch", "data"}};
  const MeshRules mesh_rules{mesh, nn::decoder_rules(mesh, rules)};  // the other names are replicated
  const nn::DecoderConfig config{.vocab_size = 64,
                                 .hidden_size = 32,
                                 .num_hidden_layers = 1,
                                 .num_attention_heads = 8,
                                 .num_key_value_heads = 8,
                                 .head_dim = 4,
                                 .intermediate_size = 64};
  auto model = nn::filter_shard(nn::CausalLM::init(Key(0), config), mesh_rules);
  auto optimizer = optim::Optimizer(model, optim::adamw({.learning_rate = 1e-3}));
  const auto gradient = nn::value_and_grad(loss_of);
  std::cout << visualize_sharding(model.embed.tokens);

  Batch batch;
  batch.ids = randint(Key(1), {8, 16}, 0, 64), batch.labels = randint(Key(2), {8, 16}, 0, 64);
  batch = data::from_process_local(batch, mesh_rules);
  for (int step = 0; step < 2; ++step) {
    const CommLedger ledger;
    const auto [loss, grads] = gradient(model, batch);
    optimizer.update(model, grads);
    std::cout << "loss " << loss.item<float>() << '\n' << ledger.to_text();
  }
}
