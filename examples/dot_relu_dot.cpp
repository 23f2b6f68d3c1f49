// Flax's guide to multiple devices: parameters annotated with mesh axes, and a training loop.
#include <cstdio>
#include <iostream>

#include <tessera/nn/layers/linear.h>
#include <tessera/nn/placement.h>
#include <tessera/nn/transformations.h>
#include <tessera/optim/optimizer.h>
#include <tessera/sharding/array.h>
#include <tessera/sharding/operations.h>
#include <tessera/sharding/placement.h>
#include <tessera/sharding/random.h>

using namespace tessera;

struct DotReluDot {
  nn::Linear dot1;
  nn::Param w2;

  static DotReluDot init(const Key& key, int64_t depth) {
    nn::Linear dot1 = nn::Linear::init(fold_in(key, 0), {"in", depth}, {"out", depth}, {.bias = false});
    dot1.kernel.axes = {none, mesh_axis("model")};
    const Array w2 = nn::init::lecun_normal()(fold_in(key, 1), {depth, depth});
    return {.dot1 = dot1, .w2 = {w2, {mesh_axis("model"), none}}};
  }
  Array operator()(const Array& x) const {
    const Array y = with_sharding_constraint(relu(dot1(x)), P{"data", "model"});
    return matmul(y, w2);
  }
};

Array mse(const DotReluDot& model, const Array& x, const Array& y) { return mean(square(model(x) - y)); }

int main() {
  const Mesh mesh = make_mesh({{"data", 2}, {"model", 4}});
  auto model = nn::filter_shard(DotReluDot::init(Key(0), 1024), MeshRules(mesh, {}));
  for (const nn::Leaf& leaf : nn::leaves(model))
    std::cout << leaf.value->sharding().spec().to_string() << '\n' << visualize_sharding(*leaf.value);

  auto optimizer = optim::Optimizer(model, optim::adam({.learning_rate = 1e-3}));
  const NamedSharding data_sharding(mesh, P{"data", none});
  const Array input = device_put(normal(Key(1), {8, 1024}), data_sharding);
  const Array label = device_put(normal(Key(2), {8, 1024}), data_sharding);
  for (int i = 0; i < 5; ++i) {
    const auto [loss, grads] = nn::value_and_grad(mse)(model, input, label);
    optimizer.update(model, grads);
    std::printf("loss %.6f\n", loss.item<float>());
  }
}
