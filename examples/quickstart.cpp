// The quickstart: trains a model of plain structs, sharded by dimension names, on eight virtual devices.
#include <iostream>

#include <tessera/data/batches.h>
#include <tessera/nn/layers/linear.h>
#include <tessera/nn/placement.h>
#include <tessera/nn/transformations.h>
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
  Array operator()(const Array& x) const { return down(gelu(up(x))); }
};

struct Batch {
  NamedArray x{"batch", "embed"};
  NamedArray y{"batch", "embed"};
};

Array mse(const Mlp& model, const Batch& batch) { return mean(square(model(batch.x) - batch.y)); }

// Examples of the function to learn: y is x rotated by one position.
Batch make_batch(Key key) {
  Batch batch;
  const Array x = normal(key, {32, 512});
  const std::vector<float> values = x.to_host<float>();
  std::vector<float> rotated(values.size());
  for (size_t i = 0; i < values.size(); ++i) rotated[i] = values[i / 512 * 512 + (i + 1) % 512];
  batch.x = x;
  batch.y = array<float>(rotated, {32, 512});
  return batch;
}

int main() {
  const MeshRules mesh_rules{make_mesh({{"data", 4}, {"model", 2}}),
                             {{"batch", "data"}, {"hidden", "model"}, {"embed", replicated}}};

  auto model = nn::filter_shard(Mlp::init(Key(0), {"embed", 512}, {"hidden", 2048}), mesh_rules);
  auto optimizer = optim::Optimizer(model, optim::chain(optim::clip_by_global_norm(1.0),
                                                        optim::adamw({.learning_rate = 3e-4})));
  std::cout << nn::placement_table(model);

  for (const Key& key : split(Key(1), 20)) {
    const Batch local = make_batch(key);                              // the rows of this process
    const Batch batch = data::from_process_local(local, mesh_rules);  // one global array over the mesh
    const auto [loss, grads] = nn::value_and_grad(mse)(model, batch);
    optimizer.update(model, grads);  // in place
    std::cout << "loss " << loss.item<float>() << '\n';
  }
}
