// Equinox's filter_shard example: a batch sharded over two devices, a model replicated on both, and training.
#include <cstdio>
#include <iostream>

#include <tessera/nn/layers/embedding.h>
#include <tessera/nn/layers/linear.h>
#include <tessera/nn/placement.h>
#include <tessera/nn/transformations.h>
#include <tessera/optim/optimizer.h>
#include <tessera/sharding/array.h>
#include <tessera/sharding/operations.h>
#include <tessera/sharding/random.h>

using namespace tessera;

struct Model {
  nn::Embedding embed;
  nn::Linear hidden, out;

  static Model init(const Key& key, const Axis& vocab, const Axis& embed, const Axis& time) {
    const auto [k1, k2, k3] = split<3>(key);
    return {.embed = nn::Embedding::init(k1, vocab, embed, nn::init::normal(1)),
            .hidden = nn::Linear::init(k2, embed, time, {.bias = false}),
            .out = nn::Linear::init(k3, time, vocab, {.bias = false})};
  }
  Array operator()(const Array& tokens) const { return out(tanh(hidden(embed(tokens)))); }
};

Array loss_fn(const Model& model, const Array& x) { return cross_entropy(model(x), (x + 1) % 16); }

int main() {
  const Mesh mesh = make_mesh({{"batch", 2}});
  const NamedSharding data_sharding(mesh, P{"batch"}), model_sharding(mesh, P{});
  std::cout << visualize_sharding(nn::filter_shard(uniform(Key(22), {1024}), data_sharding));

  const auto whole = Model::init(Key(0), {"vocab", 16}, {"embed", 8}, {"time", 12});
  const auto adamw = optim::chain(optim::clip_by_global_norm(1.0), optim::adamw({.learning_rate = 1e-2}));
  auto [model, optimizer] = nn::filter_shard(std::pair(whole, optim::Optimizer(whole, adamw)), model_sharding);

  const Array x_0_batch = nn::filter_shard(randint(Key(1), {32}, 0, 16), data_sharding);
  for (int step = 0; step < 5; ++step) {
    const auto [loss, grads] = nn::value_and_grad(loss_fn)(model, x_0_batch);
    optimizer.update(model, grads);
    std::printf("loss %.6f\n", loss.item<float>());
  }
  std::cout << model(x_0_batch).sharding().spec().to_string() << '\n';
}
