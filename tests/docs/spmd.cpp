// The programs of docs/spmd.md that are no example: meshes, specs, a model placed by its paths, a step, inspection.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iostream>

#include <tessera/nn/layers/embedding.h>
#include <tessera/nn/layers/linear.h>
#include <tessera/nn/layers/norm.h>
#include <tessera/nn/placement.h>
#include <tessera/nn/transformations.h>
#include <tessera/optim/optimizer.h>
#include <tessera/sharding/accounting.h>
#include <tessera/sharding/array.h>
#include <tessera/sharding/operations.h>
#include <tessera/sharding/placement.h>
#include <tessera/sharding/random.h>

using namespace tessera;

// ---- Meshes --------------------------------------------------------------------------------------------------------

void meshes() {
  const Mesh lines = make_mesh({{"data", 8}});
  const Mesh grid = make_mesh({{"data", 4}, {"model", 2}});
  const Mesh cube = make_mesh({{"data", 2}, {"model", 2}, {"pipeline", 2}});
  for (const Mesh& mesh : {lines, grid, cube}) fmt::print("{}: {} devices\n", mesh.to_string(), mesh.size());
}

// ---- A model placed by the paths of its parameters -----------------------------------------------------------------

struct Classifier {
  nn::Embedding embed;
  nn::LayerNorm norm;
  nn::Linear up, head;

  static Classifier init(const Key& key) {
    const auto [k1, k2, k3] = split<3>(key);
    return {.embed = nn::Embedding::init(k1, {"vocab", 1000}, {"embed", 512}),
            .norm = nn::LayerNorm::init({"embed", 512}),
            .up = nn::Linear::init(k2, {"embed", 512}, {"hidden", 2048}),
            .head = nn::Linear::init(k3, {"hidden", 2048}, {"class", 10})};
  }
  Array operator()(const Array& ids) const { return head(gelu(up(norm(mean(embed(ids), {1}))))); }
};

struct Batch {
  Array input_ids, label;
};

Classifier shard_params(const Classifier& model, const Mesh& mesh) {
  const NamedSharding model_parallel(mesh, P{none, "model"}), whole(mesh, P{});
  return nn::filter_shard(model, [&](const std::string& path, const Array& x) {
    const bool is_large = path.ends_with("kernel") && x.shape(0) > 256 && x.shape(1) > 256;
    return is_large ? model_parallel : whole;
  });
}

// ---- A training step with a metric ---------------------------------------------------------------------------------

std::pair<Array, Array> loss_fn(const Classifier& model, const Batch& batch) {
  const Array logits = model(batch.input_ids);
  const Array accuracy = mean(equal(argmax(logits, -1), batch.label));
  return {cross_entropy(logits, batch.label), accuracy};
}

void train(const Mesh& mesh) {
  auto model = shard_params(Classifier::init(Key(0)), mesh);
  std::cout << nn::placement_table(model) << '\n';
  auto optimizer = optim::Optimizer(model, optim::adam({.learning_rate = 1e-3}));
  for (int step = 0; step < 5; ++step) {
    Batch batch{.input_ids = randint(Key(1), {32, 16}, 0, 1000), .label = randint(Key(2), {32}, 0, 10)};
    batch = nn::filter_shard(batch, NamedSharding(mesh, P{"data"}));
    const auto [result, grads] = nn::value_and_grad(loss_fn)(model, batch);
    optimizer.update(model, grads);
    const auto& [loss, accuracy] = result;
    fmt::print("Loss: {:.4f}, Acc: {:.4f}\n", loss.item<float>(), accuracy.item<float>());
  }
}

// ---- Inspection, and moving what lies elsewhere --------------------------------------------------------------------

void inspect(const Mesh& mesh) {
  const Array x = device_put(normal(Key(0), {32, 64}), NamedSharding(mesh, P{"data", "model"}));
  fmt::print("Shape: {}\n", to_string(x.shape()));
  fmt::print("Sharding: {}\n", x.sharding().to_string());
  fmt::print("Devices: {}\n", fmt::join(x.sharding().mesh().devices(), " "));
  std::cout << visualize_sharding(x);
}

void reshard_arrays(const Mesh& mesh) {
  const Array x_data = device_put(normal(Key(0), {16, 8}), NamedSharding(mesh, P{"data"}));
  const CommLedger ledger;
  const Array result = with_sharding_constraint(x_data, P{"model"}) * 2;
  std::cout << result.type_string() << '\n' << ledger.to_text();
}

int main() {
  meshes();
  const Mesh mesh = make_mesh({{"data", 4}, {"model", 2}});
  train(mesh);
  inspect(mesh);
  reshard_arrays(mesh);
}
