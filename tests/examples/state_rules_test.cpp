// Rules for the optimizer's state: the state keeps its sharding, and the rules do not change what is learned.
#include <gtest/gtest.h>

#include <vector>

#include "nn/layers/mlp.h"
#include "nn/placement/filter_shard.h"
#include "nn/placement/table.h"
#include "nn/transformations/value_and_grad.h"
#include "optim/optimizer.h"
#include "sharding/operations.h"
#include "sharding/random/random.h"
#include "sharding/redistribution/device_put.h"
#include "tests/sharding/meshes.h"

namespace tessera::examples::state_rules_test {
namespace {

Array mse(const nn::Mlp& model, const Array& x) { return mean(square(model(x) - x)); }

struct Trained {
  std::vector<float> losses;
  nn::PlacementTable model, optimizer, foreseen;
};

Trained train(const MeshRules& mesh_rules) {
  auto model = nn::filter_shard(nn::Mlp::init(Key(0), {"embed", 16}, {"hidden", 32}), mesh_rules);
  auto optimizer = optim::Optimizer(model, optim::adamw({.learning_rate = 1e-2}));
  const nn::PlacementTable foreseen = nn::placement_table(optimizer, mesh_rules.optimizer_state());
  optimizer = nn::filter_shard(optimizer, mesh_rules.optimizer_state());
  const Array x = device_put(normal(Key(1), {8, 16}), Axes{"batch", "embed"}, mesh_rules);
  std::vector<float> losses;
  for (int step = 0; step < 4; ++step) {
    const auto [loss, grads] = nn::value_and_grad(mse)(model, x);
    optimizer.update(model, grads);
    losses.push_back(loss.item<float>());
  }
  return {losses, nn::placement_table(model), nn::placement_table(optimizer), foreseen};
}

TEST(StateRules, PlaceMomentsElsewhereThanParameters) {
  const Rules rules{{"batch", "data"}, {"embed", replicated}, {"hidden", "model"}};
  for (const Mesh mesh : tessera::testing::shared_and_private({{"data", 4}, {"model", 2}})) {
    const Trained plain = train({mesh, rules}), own = train({mesh, rules, {.optimizer_state = {{"embed", "data"}}}});
    for (size_t i = 0; i < plain.losses.size(); ++i) EXPECT_NEAR(own.losses[i], plain.losses[i], 1e-5);
    EXPECT_EQ(plain.model.to_text(), own.model.to_text());
    EXPECT_EQ(own.foreseen.to_text(), own.optimizer.to_text());
    EXPECT_LT(own.optimizer.bytes_per_device(), plain.optimizer.bytes_per_device() / 3);
  }
}

}  // namespace
}  // namespace tessera::examples::state_rules_test
