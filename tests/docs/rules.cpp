// The code of docs/rules.md: tables of rules, the output of explain, and error messages.
#include <iostream>

#include <tessera/nn/layers/embedding.h>
#include <tessera/nn/layers/linear.h>
#include <tessera/nn/placement.h>
#include <tessera/optim/optimizer.h>
#include <tessera/sharding/operations.h>
#include <tessera/sharding/random.h>

using namespace tessera;

struct Mlp {
  nn::Linear up, down;

  static Mlp init(Key key, Axis embed, Axis hidden) {
    auto [k1, k2] = split<2>(key);
    return {.up = nn::Linear::init(k1, embed, hidden), .down = nn::Linear::init(k2, hidden, embed)};
  }
};

struct Layer {
  Mlp mlp;
};

struct Deep {
  std::vector<Layer> layers;
};

struct Kernels {
  nn::Param up;
};

struct Decoder {
  nn::Embedding embed;
  std::vector<Kernels> layers;
};

void place() {
  const MeshRules mesh_rules{make_mesh({{"data", 4}, {"model", 2}}),
                             {{"batch", "data"}, {"hidden", "model"}, {"embed", replicated}}};
  auto model = nn::filter_shard(Mlp::init(Key(0), {"embed", 512}, {"hidden", 2048}), mesh_rules);
}

void tables(const Mesh& mesh) {
  const MeshRules mesh_rules{mesh,
                             {{"batch", "data"}, {"embed", "data"}, {"hidden", "model"}},
                             {.activations = {{"embed", replicated}}, .optimizer_state = {{"norm", "data"}}}};
  auto model = nn::filter_shard(Mlp::init(Key(0), {"embed", 16}, {"hidden", 32}), mesh_rules);
  auto optimizer = optim::Optimizer(model, optim::adamw({.learning_rate = 3e-4}));
  optimizer = nn::filter_shard(optimizer, mesh_rules.optimizer_state());
}

void refused() {
  Deep model{.layers = {}};
  for (const Key& key : split(Key(0), 3)) model.layers.push_back({Mlp::init(key, {"embed", 4}, {"hidden", 3072})});
  try {
    (void)nn::filter_shard(model, MeshRules{make_mesh({{"model", 5}}), {{"hidden", "model"}, {"embed", replicated}}});
  } catch (const Error& error) {
    std::cout << error.what() << "\n\n";
  }
}

void explained(const Mesh& mesh) {
  Decoder model{.embed = nn::Embedding::init(Key(0), {"tokens", 64}, {"width", 8}), .layers = {}};
  for (int i = 0; i < 80; ++i) model.layers.push_back({{.value = zeros({8, 6}), .axes = {"embed", "hidden"}}});
  std::cout << nn::explain(model, {mesh,
                                   {{"hidden", "data"},
                                    {"hidden", "model"},
                                    {"embed", "data"},
                                    {"vocab", "modle"},
                                    {"embd", "data"},
                                    {"tokens", replicated},
                                    {"width", replicated}},
                                   {.missing_axes = MissingAxes::ok}});
}

void padded() {
  const MeshRules mesh_rules{make_mesh({{"model", 8}}), {{"vocab", "model", Uneven::pad}, {"embed", replicated}}};
  auto embedding = nn::filter_shard(nn::Embedding::init(Key(0), {"vocab", 50257}, {"embed", 768}), mesh_rules);
  std::cout << nn::placement_table(embedding);
}

int main() {
  const Mesh mesh = make_mesh({{"data", 4}, {"model", 2}});
  place();
  tables(mesh);
  refused();
  explained(mesh);
  padded();
}
