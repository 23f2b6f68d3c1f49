// Pipeline parallelism: a rule for the vector of layers.
#include <iostream>

#include <tessera/nn/models.h>
#include <tessera/nn/placement.h>
#include <tessera/nn/transformations.h>
#include <tessera/optim/optimizer.h>
#include <tessera/sharding/accounting.h>
#include <tessera/sharding/random.h>

using namespace tessera;

struct Batch {
  NamedArray ids{"batch", "stream_seq"}, labels{"batch", "stream_seq"};
};

WeightedSum loss_of(const nn::Llama& model, const Batch& batch) { return model.loss(batch.ids, batch.labels); }

int main() {
  const Mesh mesh = make_mesh({{"pipe", 2}, {"data", 4}});
  const Rules rules{{"layers", "pipe"}, {"batch", "data"}};
  const MeshRules mesh_rules{mesh, nn::decoder_rules(mesh, rules)};  // what has no rule is whole
  const nn::DecoderConfig config{.vocab_size = 64,
                                 .hidden_size = 32,
                                 .num_hidden_layers = 2,
                                 .num_attention_heads = 8,
                                 .num_key_value_heads = 8,
                                 .head_dim = 4,
                                 .intermediate_size = 64};
  auto model = nn::filter_shard(nn::Llama::init(Key(0), config), mesh_rules);
  auto optimizer = optim::Optimizer(model, optim::adamw({.learning_rate = 1e-3}));
  Batch batch;
  batch.ids = randint(Key(1), {8, 16}, 0, 64), batch.labels = randint(Key(2), {8, 16}, 0, 64);
  batch = nn::filter_shard(batch, mesh_rules);
  for (int step = 0; step < 2; ++step) {
    const CommLedger ledger;
    const auto [loss, grads] = nn::pipeline(loss_of, {.num_micro_batches = 2})(model, batch);
    optimizer.update(model, grads);
    std::cout << "loss " << loss.item<float>() << '\n' << ledger.to_text();
  }
}
