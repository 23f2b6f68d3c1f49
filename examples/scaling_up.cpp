// JAX's document on scaling up: shardings, meshes of eight cores, and one model with DDP, FSDP, TP and both.
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

struct LogicalDotReluDot {
  nn::Linear dot1, dot2;

  static LogicalDotReluDot init(const Key& key, int64_t depth) {
    const Axis embed{"embed", depth}, hidden{"hidden", depth};
    return {.dot1 = nn::Linear::init(fold_in(key, 0), embed, hidden, {.bias = false}),
            .dot2 = nn::Linear::init(fold_in(key, 1), hidden, embed, {.bias = false})};
  }
  Array operator()(const Array& x) const { return dot2(relu(dot1(x))); }
};

Array loss_fn(const LogicalDotReluDot& model, const Array& x, const Array& labels) {
  return cross_entropy(model(x), labels);
}

const std::pair<const char*, Rules> strategies[] = {
    {"ddp", {{"batch", "data"}, {"embed", replicated}, {"hidden", replicated}}},
    {"fsdp", {{"batch", "data"}, {"embed", "data"}, {"hidden", replicated}}},
    {"tp", {{"batch", replicated}, {"embed", replicated}, {"hidden", "model"}}},
    {"fsdp+tp", {{"batch", "data"}, {"embed", "data"}, {"hidden", "model"}}}};

void train(const char* name, const MeshRules& mesh_rules) {
  auto model = nn::filter_shard(LogicalDotReluDot::init(Key(0), 128), mesh_rules);
  auto optimizer = optim::Optimizer(model, optim::adam({.learning_rate = 1e-3}));
  const Array x = device_put(normal(Key(1), {32, 128}), Axes{"batch", none}, mesh_rules);
  const Array labels = device_put(randint(Key(2), {32}, 0, 128), Axes{"batch"}, mesh_rules);
  const Mesh mesh = mesh_rules.mesh();
  std::cout << name << ' ' << mesh.size("data") << 'x' << mesh.size("model") << ": "
            << nn::placement_table(model).bytes_per_device() << " bytes, losses";
  for (int step = 0; step < 3; ++step) {
    const auto [loss, grads] = nn::value_and_grad(loss_fn)(model, x, labels);
    optimizer.update(model, grads);
    std::printf(" %.6f", loss.item<float>());
  }
  std::cout << '\n';
}

int main() {
  const Mesh mesh = make_mesh({{"data", 4}, {"model", 2}});
  const Array batch = reshape(arange(32 * 128), {32, 128});
  std::cout << visualize_sharding(device_put(batch, NamedSharding(mesh, P{"data", none})));
  const Array x = device_put(batch, NamedSharding(mesh, P{none, "model"}));
  std::cout << (with_sharding_constraint(x, P{"data", none}) * 2).sharding().spec().to_string() << '\n' << std::flush;

  for (const auto& [data, model] : {std::pair(4, 2), {2, 4}, {1, 8}, {8, 1}})
    for (const auto& [name, rules] : strategies) train(name, {make_mesh({{"data", data}, {"model", model}}), rules});
}
