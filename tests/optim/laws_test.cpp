// One table of all optimizers, and the laws that each of them satisfies.
#include <functional>
#include <map>

#include "optim/formulas/muon.h"
#include "optim/optimizer/contrib.h"
#include "optim/wrappers/masking.h"
#include "optim/wrappers/wrappers.h"
#include "tests/optim/support.h"
#include "tests/runner/any_transform.h"

namespace tessera::optim::laws_test {
namespace {

using runner::AnyTransform;
using runner::Tree;

const std::map<std::string, AnyTransform>& table() {
  static const std::map<std::string, AnyTransform> all = {
      {"sgd", sgd({.learning_rate = 0.1})},
      {"sgd_momentum", sgd({.learning_rate = 0.1, .momentum = 0.9})},
      {"sgd_nesterov", sgd({.learning_rate = 0.1, .momentum = 0.9, .nesterov = true})},
      {"adam", adam({.learning_rate = 0.1})},
      {"adamw", adamw({.learning_rate = 0.1, .weight_decay = 0.1, .mask = matrices_only})},
      {"nadam", nadam({.learning_rate = 0.1})},
      {"nadamw", nadamw({.learning_rate = 0.1})},
      {"amsgrad", amsgrad({.learning_rate = 0.1})},
      {"adamax", adamax({.learning_rate = 0.1})},
      {"adagrad", adagrad({.learning_rate = 0.1})},
      {"adadelta", adadelta({.learning_rate = 1.0})},
      {"adabelief", adabelief({.learning_rate = 0.1, .eps = 1e-6})},
      {"adan", adan({.learning_rate = 0.1})},
      {"rmsprop", rmsprop({.learning_rate = 0.1, .momentum = 0.9})},
      {"rmsprop_centered", rmsprop({.learning_rate = 0.1, .eps = 1e-3, .centered = true})},
      {"lion", lion({.learning_rate = 0.01})},
      {"lamb", lamb({.learning_rate = 0.1, .weight_decay = 0.1})},
      {"lars", lars({.learning_rate = 0.1, .weight_decay = 0.1})},
      {"radam", radam({.learning_rate = 0.1})},
      {"yogi", yogi({.learning_rate = 0.1})},
      {"novograd", novograd({.learning_rate = 0.1})},
      {"adafactor", adafactor({.learning_rate = 0.1, .min_dim_size_to_factor = 8, .momentum = 0.9})},
      {"sign_sgd", sign_sgd({.learning_rate = 0.1})},
      {"signum", signum({.learning_rate = 0.1})},
      {"muon", muon({.learning_rate = 0.1})},
      {"lion_cautious", lion({.learning_rate = 0.01, .weight_decay = 0.5, .cautious_weight_decay = true})},
      {"cautious", chain(cautious(scale_by_adam()), add_decayed_weights(0.1), scale_by_learning_rate(0.1))},
      {"schedule_free_adamw", schedule_free_adamw()},
      {"schedule_free_sgd", schedule_free_sgd()},
      {"ademamix", ademamix({.learning_rate = 0.1})},
      {"prodigy", prodigy({.estim_lr0 = 1e-3})},
      {"adopt", adopt({.learning_rate = 0.1})},
      {"clipped", chain(clip_by_global_norm(1), clip(0.1), clip_by_block_rms(0.05), adam({.learning_rate = 0.1}))},
      {"adaptive_clip", chain(adaptive_grad_clip(0.1), centralize(), zero_nans(), sgd({.learning_rate = 0.1}))},
      {"noise", chain(add_noise(0.01, 0.5, Key(1)), sgd({.learning_rate = 0.1}))},
      {"named_chain", named_chain("first", trace({.decay = 0.9}), "last", scale(-0.1))},
      {"partition",
       partition(by_dims, "matrix", muon_matrices({.learning_rate = 0.1}), "vector", adam({.learning_rate = 0.1}))},
      {"masked", chain(masked(adam({.learning_rate = 0.1}), matrices_only), freeze(matrices_only))},
      {"accumulate", accumulate(adam({.learning_rate = 0.1}), 2)},
      {"apply_if_finite", apply_if_finite(adam({.learning_rate = 0.1}), 3)},
      {"lookahead", lookahead(sgd({.learning_rate = 0.1}), 2, 0.5)},
      {"params_ema", chain(sgd({.learning_rate = 0.1}), params_ema(0.9))},
      {"inject_hyperparams",
       inject_hyperparams([](const Hyperparams& h) { return adam({.learning_rate = h["rate"]}); }, {{"rate", 0.1}})},
  };
  return all;
}

Tree params_of(const Toy& toy, DType dtype = float32) {
  return {
      {"bias", astype(toy.bias, dtype)}, {"kernel", astype(toy.kernel, dtype)}, {"table", astype(toy.table, dtype)}};
}

Tree placed(Tree tree, const MeshRules& mesh_rules) {
  const std::map<std::string, Axes> axes = {{"bias", {"out"}}, {"kernel", {"in", "out"}}, {"table", {"vocab", "in"}}};
  for (auto& [name, x] : tree) x = device_put(x, axes.at(name), mesh_rules);
  return tree;
}

// The parameters after `steps` updates, and the state.
struct Trial {
  Tree params;
  AnyTransform::State state;
};
using Place = std::function<Tree(Tree)>;
Trial run(const AnyTransform& transform, const Place& place, DType dtype = float32, int steps = 3) {
  Trial now{place(params_of(Toy::init(1), dtype)), {}};
  now.state = transform.init(now.params);
  for (int step = 0; step < steps; ++step) {
    const Tree grads = place(params_of(Toy::init(static_cast<uint32_t>(10 + step)), dtype));
    auto [updates, next] = transform.update(grads, std::move(now.state), now.params);
    now.params = apply_updates(now.params, updates);
    now.state = std::move(next);
  }
  return now;
}
Tree unplaced(Tree tree) { return tree; }

// Runs law(transform) for each row of the table.
template <class Law>
void for_all(Law law) {
  for (const auto& [name, transform] : table()) {
    SCOPED_TRACE(name);
    law(transform);
  }
}

// Includes a mesh whose axes divide only some dimensions.
std::vector<Case> meshes() {
  std::vector<Case> all = cases();
  all.push_back(
      {"uneven", {{"data", 3}, {"model", 2}}, {{"in", replicated}, {"out", "model"}, {"vocab", "data"}}, "data,model"});
  return all;
}

// Returns the parameter whose path ends the state's path; null if the state belongs to no parameter.
const Array* owner(const std::string& path, const Tree& params) {
  for (const auto& [name, p] : params)
    if (path.ends_with(name)) return &p;
  return nullptr;
}

TEST(Laws, ShardedEqualsUnsharded) {
  for_all([](const AnyTransform& transform) {
    const Trial alone = run(transform, unplaced);
    for (const Case& c : meshes()) {
      SCOPED_TRACE(c.name);
      const MeshRules mesh_rules = mesh_rules_of(c, false);
      const Trial sharded = run(transform, [&](Tree t) { return placed(std::move(t), mesh_rules); });
      for (const auto& [name, p] : alone.params) expect_near(sharded.params.at(name), host(p), 2e-5, name);
    }
  });
}

// State of the parameter's shape has its sharding; state with one dimension less has the sharding without it; scalars
// are replicated.
void expect_by_rule(const Array& state, const Array& parameter, const std::string& path) {
  ASSERT_TRUE(state.is_committed()) << path;
  if (state.shape() == parameter.shape()) {
    EXPECT_EQ(state.sharding(), parameter.sharding()) << path;
  } else if (state.ndim() == 0) {
    EXPECT_TRUE(state.is_fully_replicated()) << path;
  } else {
    ASSERT_EQ(state.ndim() + 1, parameter.ndim()) << path;
    const Shape shard = state.sharding().shard_shape(state.shape()),
                whole = parameter.sharding().shard_shape(parameter.shape());
    const bool row = state.shape(0) == parameter.shape(0);
    EXPECT_EQ(shard[0], whole[row ? 0 : 1]) << path;
  }
}

// The types of the state are the same before and after four updates on the mesh.
void expect_kept_by_rule(const AnyTransform& transform, const MeshRules& mesh_rules) {
  const auto place = [&](Tree t) { return placed(std::move(t), mesh_rules); };
  Trial before = run(transform, place, float32, 0), after = run(transform, place, float32, 4);
  const nn::Leaves a = before.state.leaves(before.state.value), b = after.state.leaves(after.state.value);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].path, b[i].path);
    ASSERT_EQ(a[i].value->is_absent(), b[i].value->is_absent()) << a[i].path;
    if (a[i].value->is_absent()) continue;
    EXPECT_EQ(a[i].value->type_string(), b[i].value->type_string()) << a[i].path;
    const Array* parameter = owner(a[i].path, before.params);
    ASSERT_NE(parameter, nullptr) << a[i].path;
    expect_by_rule(*a[i].value, *parameter, a[i].path);
    expect_by_rule(*b[i].value, *parameter, b[i].path);
  }
}

TEST(Laws, StateIsShardedByRuleAndKeepsItsTypes) {
  for_all([](const AnyTransform& transform) {
    for (const Case& c : meshes()) {
      SCOPED_TRACE(c.name);
      expect_kept_by_rule(transform, mesh_rules_of(c, false));
    }
  });
}

TEST(Laws, AMeshWithoutDevicesIsAsGood) {
  const Case c = cases()[4];
  const MeshRules mesh_rules{make_mesh(c.axes, {.abstract = true}), c.rules};
  for_all([&](const AnyTransform& transform) { expect_kept_by_rule(transform, mesh_rules); });
}

TEST(Laws, ArraysOfNoDimAndOfNoElement) {
  for_all([](const AnyTransform& transform) {
    Tree params{{"empty", ones({0, 4})}, {"none", ones({0})}, {"one", ones({1, 1})}, {"scalar", ones({})}};
    AnyTransform::State state = transform.init(params);
    for (int step = 0; step < 3; ++step) {
      auto [updates, next] = transform.update(params, std::move(state), params);
      for (const auto& [name, p] : params) EXPECT_EQ(updates.at(name).shape(), p.shape()) << name;
      params = apply_updates(params, updates);
      state = std::move(next);
    }
    for (const auto& [name, p] : params)
      for (const float value : host(p)) EXPECT_TRUE(std::isfinite(value)) << name;
  });
}

// The state is copied to the host and back, with the shardings of a new state.
TEST(Laws, ARestoredStateContinues) {
  const Case c = cases()[4];
  const MeshRules mesh_rules = mesh_rules_of(c, false);
  const auto place = [&](Tree t) { return placed(std::move(t), mesh_rules); };
  for_all([&](const AnyTransform& transform) {
    Trial now = run(transform, place, float32, 2);
    AnyTransform::State restored = now.state;
    for (nn::Leaf& leaf : restored.leaves(restored.value)) {
      Array& x = *leaf.value;
      if (x.is_absent()) continue;
      const Array read = x.dtype() == boolean ? astype(astype(x, float32) * 1.0, boolean)
                                              : array<float>(x.to_host<float>(), x.shape());
      x = device_put(read, x.sharding());
    }
    const Tree grads = place(params_of(Toy::init(7)));
    const Tree expected = transform.update(grads, now.state, now.params).first;
    for (const auto& [name, update] : transform.update(grads, restored, now.params).first)
      expect_near(update, host(expected.at(name)), 0, name);
  });
}

TEST(Laws, StatesAreFloat32OrMore) {
  for_all([](const AnyTransform& transform) {
    for (const DType given : {bfloat16, float16, float64}) {
      Trial now = run(transform, unplaced, given);
      for (const nn::Leaf& leaf : now.state.leaves(now.state.value)) {
        if (leaf.value->is_absent() || leaf.value->dtype() == boolean) continue;
        const DType kept = leaf.value->dtype();
        EXPECT_TRUE(kept == float32 || (kept == float64 && given == float64)) << leaf.path << " " << name_of(kept);
      }
      for (const auto& [name, p] : now.params) EXPECT_EQ(p.dtype(), given) << name;
    }
  });
}

TEST(Laws, WhatHasNoGradientIsLeftAlone) {
  for_all([](const AnyTransform& transform) {
    Tree params = params_of(Toy::init(1));
    params["frozen"] = ones({4, 4});
    params["ids"] = array<int32_t>({1, 2});
    AnyTransform::State state = transform.init(params);
    for (uint32_t step = 0; step < 3; ++step) {
      Tree grads = params_of(Toy::init(10 + step));
      grads["frozen"] = grads["ids"] = {};
      auto [updates, next] = transform.update(grads, std::move(state), params);
      const Tree before = params;
      params = apply_updates(params, updates);
      EXPECT_EQ(host(params.at("frozen")), std::vector<float>(16, 1));
      EXPECT_TRUE(params.at("ids").is_same(before.at("ids")));
      state = std::move(next);
    }
  });
}

TEST(Laws, GradientsOfAnotherModelAreRefused) {
  for_all([](const AnyTransform& transform) {
    const Tree params = params_of(Toy::init(1));
    Tree other = params;
    other["kernel"] = ones({8, 15});
    testing::expect_error(ErrorKind::shape_mismatch, "kernel", [&] {
      apply_updates(params, transform.update(other, transform.init(params), params).first);
    });
  });
}

}  // namespace
}  // namespace tessera::optim::laws_test
