// Two optimizers for one model: Muon for the matrices, AdamW for the rest.
#include <iostream>

#include <tessera/nn/layers/linear.h>
#include <tessera/nn/placement.h>
#include <tessera/nn/transformations.h>
#include <tessera/optim/optimizer.h>
#include <tessera/sharding/operations.h>
#include <tessera/sharding/placement.h>
#include <tessera/sharding/random.h>

using namespace tessera;

struct Mlp {
  nn::Linear up, down;

  static Mlp init(Key key, Axis embed, Axis hidden) {
    auto [k1, k2] = split<2>(key);
    return {.up = nn::Linear::init(k1, embed, hidden), .down = nn::Linear::init(k2, hidden, embed)};
  }
  Array operator()(const Array& x) const { return down(gelu(up(x))); }
};

Array mse(const Mlp& model, const Array& x, const Array& y) { return mean(square(model(x) - y)); }

int main() {
  const MeshRules mesh_rules{make_mesh({{"data", 4}, {"model", 2}}),
                             {{"batch", "data"}, {"hidden", "model"}, {"embed", replicated}}};
  auto model = nn::filter_shard(Mlp::init(Key(0), {"embed", 64}, {"hidden", 256}), mesh_rules);
  const Array x = device_put(normal(Key(1), {32, 64}), {"batch", "embed"}, mesh_rules), y = -x;

  const auto by_dims = [](const std::string&, const Array& p) { return p.ndim() == 2 ? "matrices" : "rest"; };
  auto optimizer = optim::Optimizer(
      model, optim::chain(optim::clip_by_global_norm(1.0),
                          optim::partition(by_dims,  //
                                           "matrices", optim::muon_matrices({.learning_rate = 0.02}),
                                           "rest", optim::adamw({.learning_rate = 3e-3}))));
  std::cout << nn::placement_table(nn::named("optimizer", optimizer));

  for (int step = 0; step < 30; ++step) {
    const auto [loss, grads] = nn::value_and_grad(mse)(model, x, y);
    optimizer.update(model, grads);
    if (step % 10 == 9) std::cout << "loss " << loss.item<float>() << '\n';
  }
}
