// JAX's document on scaling up: logical axis names, their rules, and the distributed training loop.
#include <cstdio>
#include <iostream>

#include <tessera/data/batches.h>
#include <tessera/nn/layers/linear.h>
#include <tessera/nn/placement.h>
#include <tessera/nn/transformations.h>
#include <tessera/optim/optimizer.h>
#include <tessera/sharding/operations.h>
#include <tessera/sharding/random.h>

using namespace tessera;

struct LogicalDotReluDot {
  nn::Linear dot1, dot2;

  static LogicalDotReluDot init(const Key& key, int64_t depth) {
    const Axis embed{"embed", depth}, hidden{"hidden", depth};
    return {.dot1 = nn::Linear::init(fold_in(key, 0), embed, hidden, {.bias = false}),
            .dot2 = nn::Linear::init(fold_in(key, 1), hidden, embed, {.bias = false})};
  }
  Array operator()(const Array& x) const { return dot2(relu(dot1(x))); }
};

struct Batch {
  NamedArray x{"batch", "embed"};
  NamedArray labels{"batch"};
};

Batch get_next_batch(int step) {
  const auto [batch_key, label_key] = split<2>(Key(step));
  Batch batch;
  batch.x = normal(batch_key, {32, 128});
  batch.labels = randint(label_key, {32}, 0, 128);
  return batch;
}

Array loss_fn(const LogicalDotReluDot& model, const Batch& batch) {
  return cross_entropy(model(batch.x), batch.labels);
}

int main() {
  const MeshRules mesh_rules{make_mesh({{"data", 4}, {"model", 2}}),
                             {{"batch", "data"}, {"hidden", "model"}, {"embed", replicated}}};
  auto model = nn::filter_shard(LogicalDotReluDot::init(Key(0), 128), mesh_rules);
  auto optimizer = optim::Optimizer(model, optim::adam({.learning_rate = 1e-3}));
  for (const nn::Leaf& leaf : nn::leaves(model)) std::cout << leaf.value->sharding().spec().to_string() << '\n';
  for (int step = 0; step < 5; ++step) {
    const Batch batch = data::from_process_local(get_next_batch(step), mesh_rules);
    const auto [loss, grads] = nn::value_and_grad(loss_fn)(model, batch);
    optimizer.update(model, grads);
    std::printf("loss %.6f\n", loss.item<float>());
  }
}
