// Optimizer::update: equal to the pure transform, in place, and without writing to memory that others share.
#include "optim/optimizer.h"

#include <ATen/ATen.h>

#include "nn/transformations/value_and_grad.h"
#include "sharding/array/array_impl.h"
#include "tests/optim/support.h"
#include "tests/sharding/meshes.h"

namespace tessera::optim::optimizer_test {
namespace {

auto clipped_adamw() {
  return chain(clip_by_global_norm(1.0),
               adamw({.learning_rate = warmup_cosine_decay_schedule(
                          {.init_value = 1e-2, .peak_value = 0.1, .warmup_steps = 2, .decay_steps = 6}),
                      .b2 = 0.95,
                      .weight_decay = 0.1,
                      .mask = matrices_only}));
}

const at::Tensor& local(const Array& x, size_t i = 0) { return x.impl()->local[i]; }

Array loss_of(const Toy& model, const Array& x) {
  return mean(square(matmul(x, model.kernel) + model.bias)) + 0.1 * sum(square(model.table));
}

TEST(Optimizer, FusedEqualsPure) {
  expect_equal_to_pure(clipped_adamw(), Toy::init(1));
  expect_equal_to_pure(adam({.learning_rate = 0.1}), Toy::init(1));
  on_all_meshes([](const Case&, const MeshRules& mesh_rules) {
    const Toy model = nn::filter_shard(Toy::init(1), mesh_rules);
    expect_equal_to_pure(clipped_adamw(), model);
    expect_equal_to_pure(sgd({.learning_rate = 0.1}), model);
    expect_equal_to_pure(sgd({.learning_rate = 0.1, .momentum = 0.9}), model);
    expect_equal_to_pure(chain(clip_by_global_norm(1), sgd({.learning_rate = 0.1, .momentum = 0.9, .nesterov = true})),
                         model);
  });
}

TEST(Optimizer, ChainsWithoutAFusedTailArePure) {
  on_all_meshes([](const Case&, const MeshRules& mesh_rules) {
    const Toy model = nn::filter_shard(Toy::init(1), mesh_rules);
    expect_equal_to_pure(lion({.learning_rate = 0.1}), model);
    expect_equal_to_pure(nadamw({.learning_rate = 0.1}), model);
    expect_equal_to_pure(chain(adam({.learning_rate = 0.1}), scale(0.5)), model);
    expect_equal_to_pure(adamw({.learning_rate = 0.1, .eps_root = 0.1}), model);
    expect_equal_to_pure(scale(-0.5), model);
  });
}

TEST(Optimizer, AllMeshesGiveTheSameModel) {
  Toy alone = Toy::init(1);
  Optimizer reference(alone, clipped_adamw());
  for (uint32_t step = 0; step < 5; ++step) reference.update(alone, gradients_for(alone, step));
  on_all_meshes([&](const Case&, const MeshRules& mesh_rules) {
    Toy model = nn::filter_shard(Toy::init(1), mesh_rules);
    Optimizer optimizer(model, clipped_adamw());
    for (uint32_t step = 0; step < 5; ++step) optimizer.update(model, gradients_for(model, step));
    expect_tree_near(model, alone, 1e-6);
  });
}

TEST(Optimizer, EveryReplicaIsUpdated) {
  const MeshRules mesh_rules{make_mesh({{"data", 2}, {"model", 2}}, {.private_replicas = true}),
                             {{"in", "model"}, {"out", replicated}, {"vocab", replicated}}};
  Toy model = nn::filter_shard(Toy::init(1), mesh_rules);
  Optimizer optimizer(model, clipped_adamw());
  optimizer.update(model, gradients_for(model, 2));
  for (const nn::Leaf& leaf : nn::named("model", model, "optimizer", optimizer)) {
    ASSERT_EQ(leaf.value->impl()->local.size(), 4) << leaf.path;
    EXPECT_TRUE(at::equal(local(*leaf.value, 0), local(*leaf.value, 2))) << leaf.path;
    EXPECT_TRUE(at::equal(local(*leaf.value, 1), local(*leaf.value, 3))) << leaf.path;
    EXPECT_NE(local(*leaf.value, 0).data_ptr(), local(*leaf.value, 2).data_ptr()) << leaf.path;
  }
}

TEST(Optimizer, StateIsShardedLikeItsParameter) {
  on_all_meshes([](const Case&, const MeshRules& mesh_rules) {
    Toy model = nn::filter_shard(Toy::init(1), mesh_rules);
    Optimizer optimizer(model, clipped_adamw());
    const auto check = [&] {
      const nn::Leaves p = nn::leaves(model);
      for (const Toy* moments : {&std::get<1>(optimizer.state()).mu, &std::get<1>(optimizer.state()).nu}) {
        const nn::Leaves m = nn::leaves(*moments);
        for (size_t i = 0; i < p.size(); ++i) {
          EXPECT_EQ(m[i].value->impl()->type, p[i].value->impl()->type) << p[i].path;
          EXPECT_EQ(m[i].value->sharding(), p[i].value->sharding()) << p[i].path;
          EXPECT_EQ(*m[i].axes, *p[i].axes) << p[i].path;
          EXPECT_EQ(m[i].value->impl()->local.size(), p[i].value->impl()->local.size()) << p[i].path;
          for (const at::Tensor& t : m[i].value->impl()->local)
            EXPECT_EQ(t.sizes().vec(), p[i].value->impl()->type->local) << p[i].path;
        }
      }
    };
    check();
    optimizer.update(model, gradients_for(model, 2));
    check();
  });
}

TEST(Optimizer, IsATreeWithGoodPaths) {
  Toy model = Toy::init(1);
  Optimizer optimizer(model, clipped_adamw());
  const nn::Leaves all = nn::named("optimizer", optimizer);
  ASSERT_EQ(all.size(), 6);
  EXPECT_EQ(all[0].path, "optimizer.state.1.mu.kernel");
  EXPECT_EQ(all[5].path, "optimizer.state.1.nu.table");
  EXPECT_TRUE(all[0].value->is_lazy());
  const Case c = cases()[4];
  const auto placed = nn::filter_shard(optimizer, mesh_rules_of(c, false));
  const Toy placed_model = nn::filter_shard(model, mesh_rules_of(c, false));
  EXPECT_EQ(std::get<1>(placed.state()).nu.table.value.sharding(), placed_model.table.value.sharding());
}

TEST(Optimizer, MadeBeforeTheModelWasPlaced) {
  const Toy plain = Toy::init(1);
  Optimizer optimizer(plain, clipped_adamw());
  on_all_meshes([&](const Case&, const MeshRules& mesh_rules) {
    auto late = optimizer;
    Toy model = nn::filter_shard(plain, mesh_rules), expected = model;
    Optimizer early(expected, clipped_adamw());
    const Toy grads = gradients_for(model, 2);
    late.update(model, grads);
    early.update(expected, grads);
    expect_tree_near(model, expected, 0);
    EXPECT_EQ(std::get<1>(late.state()).mu.kernel.value.impl()->type, model.kernel.value.impl()->type);
  });
}

TEST(Optimizer, KeepsPathMeshRulesShardingAndMemory) {
  on_all_meshes([](const Case& c, const MeshRules& mesh_rules) {
    Toy model = nn::filter_shard(Toy::init(1), mesh_rules);
    for (const bool fused : {true, false}) {
      const auto train = [&](const auto& tx) {
        Optimizer optimizer(model, tx);
        const NamedSharding placed = model.table.value.sharding();
        const auto* type = model.table.value.impl()->type;
        std::vector<void*> before;
        for (const at::Tensor& t : model.table.value.impl()->local) before.push_back(t.data_ptr());
        const Array x = device_put(normal(Key(3), {8, 8}), NamedSharding(mesh_rules.mesh(), P{"data"}));
        for (int step = 0; step < 3; ++step) {
          auto [loss, grads] = nn::value_and_grad(loss_of)(model, x);
          optimizer.update(model, grads);
        }
        const Array& table = model.table.value;
        EXPECT_EQ(table.path(), "table");
        EXPECT_EQ(table.sharding(), placed);
        EXPECT_EQ(table.impl()->type, type);
        EXPECT_EQ(table.impl()->mesh_rules, mesh_rules.impl());
        EXPECT_TRUE(table.impl()->weight);
        for (size_t i = 0; fused && i < before.size(); ++i) EXPECT_EQ(local(table, i).data_ptr(), before[i]) << c.name;
      };
      fused ? train(clipped_adamw()) : train(sgd({.learning_rate = 0.1}));
    }
  });
}

TEST(Optimizer, ACopyOfTheModelStaysWhatItWas) {
  on_all_meshes([](const Case&, const MeshRules& mesh_rules) {
    Toy model = nn::filter_shard(Toy::init(1), mesh_rules);
    Optimizer optimizer(model, clipped_adamw());
    optimizer.update(model, gradients_for(model, 2));
    const auto best = model;
    const auto saved = optimizer;
    const std::vector<float> kernel = host(best.kernel), mu = host(std::get<1>(saved.state()).mu.kernel);
    optimizer.update(model, gradients_for(model, 3));
    optimizer.update(model, gradients_for(model, 4));
    EXPECT_EQ(host(best.kernel), kernel);
    EXPECT_EQ(host(std::get<1>(saved.state()).mu.kernel), mu);
    EXPECT_NE(host(model.kernel), kernel);
    EXPECT_EQ(saved.count(), 1);
    EXPECT_EQ(optimizer.count(), 3);
  });
}

TEST(Optimizer, AResumedCopyContinuesAsIfNeverStopped) {
  Toy model = Toy::init(1);
  Optimizer optimizer(model, clipped_adamw());
  optimizer.update(model, gradients_for(model, 2));
  Toy other = model;
  auto copy = optimizer;
  optimizer.update(model, gradients_for(model, 3));
  copy.update(other, gradients_for(other, 3));
  expect_tree_near(model, other, 0);
}

TEST(Optimizer, MemoryOfOthersIsNotWrittenTo) {
  const at::Tensor mine = at::ones({2, 3});
  std::vector<float> raw(6, 1.0f);
  struct Model {
    Array owned_by_user, twice_a, twice_b, view, blob;
  };
  const at::Tensor shared = at::ones({2, 3});
  Model model{from_tensor(mine), from_tensor(shared), from_tensor(shared), from_tensor(at::ones({3, 2}).t()),
              from_tensor(at::from_blob(raw.data(), {2, 3}))};
  const Array g = ones({2, 3}) * 1.0;
  const Model grads{g, g, g, g, g};  // the same array five times: gradients may share memory
  Optimizer optimizer(model, adam({.learning_rate = 0.5}));
  optimizer.update(model, grads);
  EXPECT_TRUE(at::equal(mine, at::ones({2, 3})));
  EXPECT_TRUE(at::equal(shared, at::ones({2, 3})));
  EXPECT_EQ(raw, std::vector<float>(6, 1.0f));
  EXPECT_EQ(host(g), std::vector<float>(6, 1.0f));
  for (const nn::Leaf& leaf : nn::leaves(model)) expect_near(*leaf.value, std::vector<float>(6, 0.5f), 1e-6, leaf.path);
}

TEST(Optimizer, WhatWasComputedFromTheOldValuesStays) {
  const Mesh mesh = make_mesh({{"data", 2}});
  std::vector<Array> model{normal(Key(1), {4, 4}) * 1.0};
  const Array x = device_put(normal(Key(2), {4, 4}), NamedSharding(mesh, P{"data"}));
  const Array before = matmul(x, model[0]);  // caches a conversion of the array to the mesh
  Optimizer optimizer(model, adam({.learning_rate = 0.5}));
  optimizer.update(model, std::vector<Array>{ones({4, 4})});
  const Array after = matmul(x, model[0]);
  expect_near(after, host(matmul(x, array<float>(model[0].to_host<float>(), {4, 4}))), 1e-6);
  EXPECT_NE(host(before), host(after));
}

TEST(Optimizer, ANonContiguousGradient) {
  std::vector<Array> model{zeros({3, 2}) * 1.0}, expected = model;
  const at::Tensor t = at::arange(1, 7).to(at::kFloat).reshape({2, 3});
  const auto tx = chain(scale_by_adam({.eps = 1}), scale_by_learning_rate(1));
  Optimizer strided(model, tx), dense(expected, tx);
  strided.update(model, {from_tensor(t.t())});
  dense.update(expected, {from_tensor(t.t().contiguous())});
  expect_near(model[0], host(expected[0]), 0);
  EXPECT_EQ(t.sum().item<float>(), 21);
  EXPECT_EQ(local(model[0]).strides().vec(), (std::vector<int64_t>{2, 1}));
}

TEST(Optimizer, TheModelAsItsOwnGradient) {
  std::vector<Array> model{array<float>({1, -2, 3})};
  Optimizer optimizer(model, adam({.learning_rate = 0.1}));
  optimizer.update(model, model);
  expect_near(model[0], {0.9f, -1.9f, 2.9f}, 1e-6);
}

TEST(Optimizer, HalfPrecisionIsRoundedOnce) {
  std::vector<Array> model{normal(Key(1), {16}, bfloat16)}, pure = model;
  const auto tx = adamw({.learning_rate = 0.01});
  Optimizer optimizer(model, tx);
  const std::vector<Array> grads{normal(Key(2), {16}, bfloat16) * 1.0};
  auto [updates, state] = tx.update(grads, tx.init(pure), pure);
  pure = apply_updates(pure, updates);
  optimizer.update(model, grads);
  EXPECT_EQ(model[0].dtype(), bfloat16);
  EXPECT_EQ(std::get<0>(optimizer.state()).mu[0].dtype(), float32);
  expect_near(model[0], host(pure[0]), 0.02);
}

TEST(Optimizer, IntegersAndAbsentGradientsAreSkipped) {
  std::vector<Array> model{array<int32_t>({3}), ones({2}), ones({2})};
  Optimizer optimizer(model, clipped_adamw());
  optimizer.update(model, {{}, {}, ones({2})});
  EXPECT_EQ(model[0].item<int32_t>(), 3);
  EXPECT_EQ(host(model[1]), (std::vector<float>{1, 1}));
  EXPECT_LT(host(model[2])[0], 1);
}

TEST(Optimizer, UnderAFiniteCheckWhatWouldNotBeFiniteIsNotUpdated) {
  on_all_meshes([](const Case&, const MeshRules& mesh_rules) {
    Toy model = nn::filter_shard(Toy::init(1), mesh_rules);
    const Toy before = model;
    Optimizer optimizer(model, adamw({.learning_rate = 1e39}));
    const DetectNonFinite scope;
    tessera::testing::expect_error(
        ErrorKind::not_finite,
        {"[Optimizer.update] kernel: optimizer_test.cpp:", "the updated parameter float", "Nothing was updated."},
        [&] { optimizer.update(model, gradients_for(model, 0)); });
    expect_tree_near(model, before, 0);
    EXPECT_EQ(optimizer.count(), 0);
    Toy grads = gradients_for(model, 0);
    grads.bias.value = full_like(grads.bias.value, NAN);
    tessera::testing::expect_error(ErrorKind::not_finite, {"[Optimizer.update] bias: ", "the gradient float"},
                                   [&] { optimizer.update(model, grads); });
  });
}

TEST(Optimizer, SgdWithAMomentumOfZeroIsSgd) {
  Toy model = Toy::init(1), same = model;
  const Toy grads = gradients_for(model, 2);
  Optimizer with(model, sgd({.learning_rate = 0.1, .momentum = 0.0})), without(same, sgd({.learning_rate = 0.1}));
  for (int i = 0; i < 2; ++i) with.update(model, grads), without.update(same, grads);
  expect_tree_near(model, same, 1e-6);
}

TEST(Optimizer, ReportsRateNormAndCount) {
  Toy model = Toy::init(1);
  Optimizer optimizer(model, clipped_adamw());
  EXPECT_EQ(optimizer.learning_rate(), 0);
  const Toy grads = gradients_for(model, 2);
  optimizer.update(model, grads);
  EXPECT_NEAR(optimizer.learning_rate(), 1e-2, 1e-9);
  EXPECT_NEAR(*optimizer.grad_norm(), global_norm(grads).item<float>(), 1e-5);
  optimizer.update(model, grads);
  EXPECT_NEAR(optimizer.learning_rate(), 0.055, 1e-9);
  EXPECT_EQ(std::get<1>(optimizer.state()).count, 2);
  EXPECT_EQ(std::get<3>(optimizer.state()).count, 2);
  EXPECT_FALSE(Optimizer(model, adam({.learning_rate = 1})).grad_norm());
}

TEST(Optimizer, CommunicatesOneNumberAtMost) {
  on_all_meshes([](const Case& c, const MeshRules& mesh_rules) {
    Toy model = nn::filter_shard(Toy::init(1), mesh_rules);
    Optimizer optimizer(model, clipped_adamw());
    const Toy grads = gradients_for(model, 2);
    CommLedger ledger;
    optimizer.update(model, grads);
    EXPECT_EQ(ledger.count(), c.norm_axes.empty() ? 0 : 1);
    EXPECT_EQ(ledger.bytes(), c.norm_axes.empty() ? 0 : 4);
  });
}

TEST(Optimizer, GradientsAreReshardedLikeTheParameter) {
  const Mesh mesh = make_mesh({{"data", 4}});
  std::vector<Array> model{device_put(ones({8, 4}), NamedSharding(mesh, P{"data"}))}, same = model;
  const Array g = device_put(normal(Key(1), {8, 4}), NamedSharding(mesh, P{none, "data"}));
  Optimizer optimizer(model, adam({.learning_rate = 0.1})), expected = optimizer;
  CommLedger ledger;
  optimizer.update(model, {g});
  EXPECT_EQ(ledger.count("all_to_all", "data"), 1);
  expected.update(same, {device_put(g, same[0].sharding())});
  expect_near(model[0], host(same[0]), 0);
  EXPECT_EQ(model[0].impl()->type, same[0].impl()->type);
}

TEST(Optimizer, ACustomTransform) {
  struct Halve {
    EmptyState init(const Toy&) const { return {}; }
    std::pair<Toy, EmptyState> update(const Toy& grads, EmptyState, const Toy&) const {
      return {nn::tree_map([](const std::string&, const Array& g) { return -0.5 * g; }, grads), {}};
    }
  };
  Toy model = Toy::init(1);
  const std::vector<float> before = host(model.bias);
  Optimizer optimizer(model, Halve{});
  optimizer.update(model, gradients_for(model, 1));
  for (size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(host(model.bias)[i], 0.5 * before[i], 1e-6);
}

TEST(Optimizer, PartialSumsForUnplacedParametersAreReduced) {
  for (const Mesh mesh : tessera::testing::shared_and_private({{"data", 4}})) {
    const Array x = device_put(array<float>({1, -2, -3, -4}, {4}), NamedSharding(mesh, P{"data"}));
    Array w = ones({1});
    Optimizer optimizer(w, adam({.learning_rate = 0.1}));
    const auto product = [&](const Array& w) { return sum(x * w); };
    const auto [loss, gradient] = nn::value_and_grad(product, {.reduce = false})(w);
    optimizer.update(w, gradient);
    EXPECT_FLOAT_EQ(w.item<float>(), 1.1f);  // the sum is negative, although the first device's part is positive
  }
}

TEST(Optimizer, ReportsTheLastUpdate) {
  std::vector<Array> model{ones({2})}, grads{ones({2})};
  Optimizer optimizer(model, sgd({.learning_rate = [](int64_t n) { return n == 0 ? 0.1 : 1e38; }}));
  EXPECT_EQ(optimizer.grad_norm("no such part"), std::nullopt);
  optimizer.update(model, grads);
  const DetectNonFinite scope;
  tessera::testing::expect_error(ErrorKind::not_finite, {"Nothing was updated."},
                                 [&] { optimizer.update(model, {full({2}, 10)}); });
  EXPECT_EQ(optimizer.count(), 1);
  EXPECT_EQ(optimizer.learning_rate(), 0.1);
}

double falling(int64_t count) { return 1.0 / static_cast<double>(1 + count); }

TEST(Optimizer, AFunctionIsASchedule) {
  std::vector<Array> model{ones({1})};
  Optimizer optimizer(model, sgd({.learning_rate = falling}));
  for (int i = 0; i < 2; ++i) optimizer.update(model, {ones({1})});
  EXPECT_EQ(model[0].item<float>(), -0.5f);
  EXPECT_EQ(Schedule(&falling)(3), 0.25);
}

}  // namespace
}  // namespace tessera::optim::optimizer_test
