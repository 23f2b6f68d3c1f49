// The code of docs/conflicts.md, shard_map.md, abstract_meshes.md and pipelines.md.
#include <ATen/ATen.h>

#include <iostream>

#include <tessera/nn/layers/embedding.h>
#include <tessera/nn/layers/linear.h>
#include <tessera/nn/layers/mlp.h>
#include <tessera/nn/layers/norm.h>
#include <tessera/nn/placement.h>
#include <tessera/nn/transformations.h>
#include <tessera/optim/optimizer.h>
#include <tessera/sharding/accounting.h>
#include <tessera/sharding/operations.h>
#include <tessera/sharding/operations/define_operation.h>
#include <tessera/sharding/placement.h>
#include <tessera/sharding/random.h>
#include <tessera/sharding/shard_map.h>

using namespace tessera;

// ---- Custom operations --------------------------------------------------------------------------------------------

const auto swell = define_operation("swell", "*", [](const at::Tensor& x) { return x * at::tanh(at::softplus(x)); });

const auto distances = define_operation("distances", "i k, j k -> i j", [](const at::Tensor& a, const at::Tensor& b) {
  return (a.unsqueeze(1) - b.unsqueeze(0)).square().sum(-1);
});

const auto clip_gradient = custom_gradient(
    [](const Array& x) { return x; },                              // without gradients
    [](const Array& x) { return std::pair(x, nullptr); },          // the result, and what the gradient needs
    [](std::nullptr_t, const Array& g) { return clip(g, -1, 1); }  // the cotangent of x
);

void operations(const Mesh& mesh) {
  const Array x = device_put(normal(Key(0), {8, 4}), NamedSharding(mesh, P{"data"}));
  const Array centers = device_put(normal(Key(1), {6, 4}), NamedSharding(mesh, P{"model"}));
  Array y = swell(distances(x, centers));
  std::cout << y.type_string() << '\n';
  y = clip_gradient(y);
}

// ---- Explicit collectives ------------------------------------------------------------------------------------------

void one_device(const Mesh& mesh) {
  const auto place = [&](const Key& key, Shape shape, PartitionSpec spec) {
    return device_put(normal(key, shape), NamedSharding(mesh, spec));
  };
  const Array x = place(Key(0), {16, 8}, P{"data"}), up = place(Key(1), {8, 32}, P{none, "model"}),
              down = place(Key(2), {32, 8}, P{"model"});
  const auto layer = shard_map([](const Array& x, const Array& up,
                                  const Array& down) { return psum(matmul(gelu(matmul(x, up)), down), "model"); },
                               mesh, {P{"data"}, P{none, "model"}, P{"model"}}, P{"data"});
  const Array y = layer(x, up, down);
  std::cout << y.type_string() << '\n';
}

// ---- Layers on stages ----------------------------------------------------------------------------------------------

struct Block {
  nn::LayerNorm norm;
  nn::Mlp mlp;

  Array operator()(const Array& x) const { return x + mlp(norm(x)); }
};

struct Decoder {
  nn::Embedding embedding;
  std::vector<Block> layers;
  nn::LayerNorm norm;

  static Decoder init(const Key& key);
  Array operator()(const Array& ids) const {
    Array x = embedding(ids);
    for (const Block& block : layers) x = block(x);
    return embedding.attend(norm(x));
  }
};

Decoder Decoder::init(const Key& key) {
  const Axis embed{"embed", 16}, hidden{"hidden", 32};
  Decoder model{nn::Embedding::init(key, {"vocab", 64}, embed), {}, nn::LayerNorm::init(embed)};
  for (uint32_t i = 0; i < 4; ++i)
    model.layers.push_back({nn::LayerNorm::init(embed), nn::Mlp::init(fold_in(key, i), embed, hidden)});
  return model;
}

Array next_token(const Decoder& model, const Array& ids) { return cross_entropy(model(ids), ids); }

void stages() {
  const MeshRules mesh_rules{
      make_mesh({{"pipe", 2}, {"data", 4}}),
      {{"layers", "pipe"},  // of the field `layers` the first half on pipe[0], the second on pipe[1]
       {"batch", "data"},
       {"vocab", replicated},
       {"embed", replicated},
       {"hidden", replicated}}};
  const auto model = nn::filter_shard(Decoder::init(Key(0)), mesh_rules);
  const Array ids = device_put(randint(Key(1), {32, 8}, 0, 64), {"batch", none}, mesh_rules);
  const auto [loss, grads] =
      nn::pipeline(next_token, {.num_micro_batches = 8, .schedule = nn::PipelineSchedule::one_f_one_b})(model, ids);
  Rules rules = mesh_rules.rules();
  rules[0] = {"layers", interleaved("pipe", 2)};  // layers 0 and 2 of four on pipe[0], layers 1 and 3 on pipe[1]
  const auto interleaved_model = nn::filter_shard(Decoder::init(Key(0)), MeshRules(mesh_rules.mesh(), rules));
  const nn::PipelineOptions options{
      .num_micro_batches = 8, .schedule = nn::PipelineSchedule::interleaved, .num_virtual_stages = 2};
  const auto [same_loss, same_grads] = nn::pipeline(next_token, options)(interleaved_model, ids);
  std::cout << loss << same_loss << '\n';
}

// ---- Meshes without hardware ---------------------------------------------------------------------------------------

Array mse(const nn::Linear& model, const Array& x) { return mean(square(model(x) - x)); }

void without_hardware() {
  const MeshRules mesh_rules{make_mesh({{"data", 64}, {"model", 8}}, {.abstract = true}),
                             {{"batch", "data"}, {"in", "data"}, {"out", "model"}}};
  auto model = nn::filter_shard(nn::Linear::init(Key(0), {"in", 4096}, {"out", 4096}), mesh_rules);
  auto optimizer = optim::Optimizer(model, optim::adamw({.learning_rate = 3e-4}));
  const Array batch = device_put(zeros({512, 4096}), NamedSharding(mesh_rules.mesh(), P{"data"}));

  const Forecast forecast;  // what follows, on one device
  const auto [loss, grads] = nn::value_and_grad(mse)(model, batch);
  optimizer.update(model, grads);
  forecast.peak_bytes();  // parameters, state, activations, gathered weights, gradients
  forecast.flops();
  std::cout << forecast.ledger().to_text();
}

int main() {
  const Mesh mesh = make_mesh({{"data", 4}, {"model", 2}});
  operations(mesh);
  one_device(mesh);
  stages();
  without_hardware();
}
