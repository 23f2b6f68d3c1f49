// The program of docs/sharding_in_pictures.md: from a mesh and an array to a sharded model and collectives.
#include <iostream>

#include <tessera/tessera.h>

using namespace tessera;

void specs() {
  const Mesh mesh = make_mesh({{"data", 4}, {"model", 2}});
  const Array x = device_put(normal(Key(0), {32, 64}), NamedSharding(mesh, P{"data", "model"}));
  std::cout << x.type_string() << '\n';
  std::cout << visualize_sharding(x);
  const Array rows = reshard(x, P{"data"});
  std::cout << rows.type_string() << '\n' << visualize_sharding(rows);
  for (const PartitionSpec& spec : {P{"data", "model"}, P{"data"}, P{none, "model"}, P{}})
    std::cout << spec.to_string() << ": local shard " << to_string(NamedSharding(mesh, spec).shard_shape(x.shape()))
              << '\n';
}

// ---- Computation follows the data ----------------------------------------------------------------------------------

void follow_the_data() {
  const Mesh mesh = make_mesh({{"x", 2}, {"y", 4}});
  const Array arr = device_put(reshape(arange(32.0), {4, 8}), NamedSharding(mesh, P{"x", "y"}));
  const Array waves = 2 * sin(arr) + 1;
  std::cout << "waves: " << waves.type_string() << '\n';
  const Array partial = sum(arr, {0});
  std::cout << "partial: " << partial.type_string() << '\n';
  const Array total = reshard(partial, P{"y"});
  std::cout << visualize_sharding(total) << total << '\n';
}

void reshard_operands() {
  const Mesh mesh = make_mesh({{"data", 4}, {"model", 2}});
  const Array x = device_put(normal(Key(2), {16, 32}), NamedSharding(mesh, P{"data", "model"}));
  const Array w = device_put(normal(Key(1), {32, 64}), NamedSharding(mesh, P{none, "model"}));
  const CommLedger ledger;
  const Array y = matmul(x, w);
  const Array z = with_sharding_constraint(y, P{"model"});
  std::cout << y.type_string() << ", " << z.type_string() << '\n' << ledger.to_text();
}

// ---- Models and gradients ------------------------------------------------------------------------------------------

Array mse(const nn::Mlp& model, const Array& x, const Array& y) { return mean(square(model(x) - y)); }

void train() {
  const Mesh mesh = make_mesh({{"data", 4}, {"model", 2}});
  const MeshRules mesh_rules{mesh, {{"embed", replicated}, {"hidden", "model"}}};
  auto model = nn::filter_shard(nn::Mlp::init(Key(0), {"embed", 64}, {"hidden", 256}), mesh_rules);
  std::cout << nn::placement_table(model);

  auto optimizer = optim::Optimizer(model, optim::adam({.learning_rate = 1e-3}));
  const Array x = device_put(normal(Key(1), {32, 64}), NamedSharding(mesh, P{"data"}));
  const Array y = device_put(normal(Key(2), {32, 64}), NamedSharding(mesh, P{"data"}));
  for (int step = 0; step < 3; ++step) {
    const CommLedger ledger;
    const auto [loss, grads] = nn::value_and_grad(mse)(model, x, y);
    optimizer.update(model, grads);
    std::cout << "loss " << loss.item<float>() << '\n';
    if (step == 2) std::cout << "gradient " << grads.up.kernel.value.type_string() << '\n' << ledger.to_text();
  }
}

// ---- Explicit collectives ------------------------------------------------------------------------------------------

void local_shards() {
  const Mesh mesh = make_mesh({{"x", 8}});
  const Array x = arange(32);
  const auto sum_of_shard = [](const Array& shard) { return sum(shard, {}, true); };
  std::cout << shard_map(sum_of_shard, mesh, P{"x"}, P{"x"})(x) << '\n';
  const auto sum_of_all = [](const Array& shard) { return psum(sum(shard), "x"); };
  std::cout << shard_map(sum_of_all, mesh, P{"x"}, P{})(x) << '\n';
}

int main() {
  specs();
  follow_the_data();
  reshard_operands();
  train();
  local_shards();
}
