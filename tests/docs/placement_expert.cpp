// Expert parallelism: rules for the batch and the experts.
#include <iostream>

#include "nn/models.h"
#include "nn/placement.h"
#include "nn/transformations.h"
#include "optim/optimizer.h"
#include "sharding/accounting.h"
#include "sharding/random.h"

using namespace tessera;

struct Batch {
  NamedArray ids{"batch", "stream_seq"}, labels{"batch", "stream_seq"};
};

WeightedSum loss_of(const nn::Mixtral& model, const Batch& batch) { return model.loss(batch.ids, batch.labels); }

int main() {
  const Mesh mesh = make_mesh({{"data", 8}});
  const Rules rules{{"batch", "data"}, {"experts", "data"}};
  const MeshRules mesh_rules{mesh, nn::decoder_rules(mesh, rules)};  // what has no rule is whole
  nn::DecoderConfig config{.vocab = 64, .embed = 32, .layers = 1, .heads = 8, .kv_heads = 8, .head_dim = 4, .mlp = 64};
  config.family = nn::DecoderFamily::mixtral, config.experts = 8, config.experts_per_token = 2;
  auto model = nn::filter_shard(nn::Mixtral::init(Key(0), config), mesh_rules);
  auto optimizer = optim::Optimizer(model, optim::adamw({.learning_rate = 1e-3}));
  Batch batch;
  batch.ids = randint(Key(1), {8, 16}, 0, 64), batch.labels = randint(Key(2), {8, 16}, 0, 64);
  batch = nn::filter_shard(batch, mesh_rules);
  for (int step = 0; step < 2; ++step) {
    const CommLedger ledger;
    const auto [loss, grads] = nn::value_and_grad(loss_of)(model, batch);
    optimizer.update(model, grads);
    std::cout << "loss " << loss.item<float>() << '\n' << ledger.to_text();
  }
}
