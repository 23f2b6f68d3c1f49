// Checkpoints of a model and its optimizer: later updates do not change saved values, and training resumes exactly.
#include "nn/checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include "nn/layers/mlp.h"
#include "nn/placement/filter_shard.h"
#include "nn/transformations/value_and_grad.h"
#include "optim/optimizer.h"
#include "sharding/operations.h"
#include "sharding/random/random.h"
#include "sharding/redistribution/device_put.h"
#include "tests/data/scratch_folder.h"

namespace tessera::optim::checkpoint_test {
namespace {

const std::vector<MeshAxis> meshes[] = {{{"data", 1}}, {{"data", 8}}, {{"data", 2}, {"model", 4}}, {{"model", 8}}};

MeshRules mesh_rules_of(const std::vector<MeshAxis>& mesh) {
  return {
      make_mesh(mesh), {{"batch", "data"}, {"embed", "data"}, {"hidden", "model"}}, {.missing_axes = MissingAxes::ok}};
}

auto clipped_adamw() {
  return chain(clip_by_global_norm(0.5),
               adamw({.learning_rate = warmup_cosine_decay_schedule(
                          {.peak_value = 0.01, .warmup_steps = 3, .decay_steps = 20, .end_value = 0.001})}));
}

struct Training {
  explicit Training(const MeshRules& mesh_rules, uint64_t seed = 1)
      : mesh_rules(mesh_rules),
        model(nn::filter_shard(nn::Mlp::init(Key(seed), {"embed", 16}, {"hidden", 64}), mesh_rules)),
        optimizer(model, clipped_adamw()) {}

  double step() {
    const Array x = device_put(normal(Key(optimizer.count()), {8, 16}), {"batch", none}, mesh_rules);
    const auto [loss, grads] = nn::value_and_grad([](const nn::Mlp& m, const Array& x) {
      const Array y = m(x) - x;
      return mean(y * y);
    })(model, x);
    optimizer.update(model, grads);
    return loss.item<double>();
  }
  auto state() { return nn::named_state("model", model, "optimizer", optimizer); }

  MeshRules mesh_rules;
  nn::Mlp model;
  Optimizer<nn::Mlp, decltype(clipped_adamw())> optimizer;
};

TEST(OptimizerCheckpoint, ContinuesOnEveryMeshAsIfItHadNeverStopped) {
  const data::ScratchFolder folder;
  Training whole(mesh_rules_of(meshes[0]));
  std::vector<double> losses;
  for (int i = 0; i < 8; ++i) {
    losses.push_back(whole.step());
    if (i == 3) nn::save(folder.path(), 4, whole.state());
  }
  for (const auto& mesh : meshes) {
    Training other(mesh_rules_of(mesh), 7);
    EXPECT_EQ(nn::restore(folder.path(), other.state()).step, 4);
    EXPECT_EQ(other.optimizer.count(), 4);
    for (int i = 4; i < 8; ++i) EXPECT_NEAR(other.step(), losses[i], 1e-6) << "step " << i;
    EXPECT_EQ(other.optimizer.learning_rate(), whole.optimizer.learning_rate());
  }
}

// The optimizer updates in place. Values that are not yet written must not change.
TEST(OptimizerCheckpoint, UpdatesDuringASaveDoNotReachIt) {
  for (const auto& mesh : meshes) {
    const data::ScratchFolder folder;
    Training run(mesh_rules_of(mesh));
    run.step();
    nn::save(folder.path("still"), 1, run.state());
    nn::Checkpointer checkpoints(folder.path("moving"));
    checkpoints.save(1, run.state());
    for (int i = 0; i < 3; ++i) run.step();
    checkpoints.wait();
    Training a(mesh_rules_of(mesh), 5), b(mesh_rules_of(mesh), 6);
    nn::restore(folder.path("still"), a.state());
    nn::restore(folder.path("moving"), b.state());
    for (int i = 0; i < 2; ++i) EXPECT_EQ(a.step(), b.step());
  }
}

// Gradients that accumulate adds up without a reduction are partial sums.
TEST(OptimizerCheckpoint, ContinuesBetweenTheUpdatesThatAccumulateSums) {
  for (const auto& mesh : meshes) {
    const MeshRules mesh_rules = mesh_rules_of(mesh);
    const auto make = [&](uint64_t seed) {
      return nn::filter_shard(nn::Mlp::init(Key(seed), {"embed", 16}, {"hidden", 64}), mesh_rules);
    };
    const auto step = [&](nn::Mlp& model, auto& optimizer) {
      const Array x = device_put(normal(Key(optimizer.count()), {8, 16}), {"batch", none}, mesh_rules);
      const auto loss = [](const nn::Mlp& m, const Array& x) { return mean(square(m(x) - x)); };
      const auto [value, grads] = nn::value_and_grad(loss, {.reduce = false})(model, x);
      optimizer.update(model, grads);
      return value.template item<double>();
    };
    const data::ScratchFolder folder;
    const auto tx = accumulate(adamw({.learning_rate = 0.01}), 3);
    nn::Mlp model = make(1), other = make(2), begun = make(3);
    Optimizer optimizer(model, tx), fresh(other, tx), running(begun, tx);
    for (int i = 0; i < 5; ++i) step(model, optimizer);
    nn::save(folder.path(), 5, nn::named_state("model", model, "optimizer", optimizer));
    step(begun, running);
    nn::restore(folder.path(), nn::named_state("model", other, "optimizer", fresh));
    nn::restore(folder.path(), nn::named_state("model", begun, "optimizer", running));
    for (int i = 0; i < 4; ++i) {
      const double expected = step(model, optimizer);
      EXPECT_NEAR(step(other, fresh), expected, 1e-6);
      EXPECT_NEAR(step(begun, running), expected, 1e-6);
    }
  }
}

}  // namespace
}  // namespace tessera::optim::checkpoint_test
