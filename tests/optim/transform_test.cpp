// Pure transforms: Optax's numbers, chains, masks and schedules.
#include "optim/transform/transform.h"

#include <map>

#include "tests/optim/support.h"

namespace tessera::optim::transform_test {
namespace {

using Tree = std::map<std::string, Array>;

// p = [1, -2, 3], g = 2p, three steps of optax 0.2.8. Optax rounds 1 - b2^t to float32, a difference of 2e-6.
constexpr double optax_rounding = 3e-6;

template <class Tx>
Array three_steps(const Tx& tx) {
  Tree params{{"p", array<float>({1, -2, 3})}};
  auto state = tx.init(params);
  for (int i = 0; i < 3; ++i) {
    auto [updates, next] = tx.update(Tree{{"p", 2 * params["p"]}}, state, params);
    params = apply_updates(params, updates);
    state = next;
  }
  return params["p"];
}

TEST(Transform, AdamwIsOptaxs) {
  expect_near(three_steps(adamw({.learning_rate = 0.1})), {.7015615f, -1.7005686f, 2.7002966f}, optax_rounding);
}

TEST(Transform, ScalesMultiply) {
  const Tree grads{{"p", array<float>({1, 2})}};
  expect_near(scale(-0.5).update(grads, {}, grads).first.at("p"), {-0.5f, -1}, 0);
  const ScaleBySchedule by_count =
      scale_by_schedule([](int64_t count) { return 10.0 * static_cast<double>(count + 1); });
  auto [first, state] = by_count.update(grads, by_count.init(grads), grads);
  auto [second, after] = by_count.update(grads, state, grads);
  expect_near(first.at("p"), {10, 20}, 0);
  expect_near(second.at("p"), {20, 40}, 0);
  EXPECT_EQ(after.count, 2);
  expect_near(identity().update(grads, {}, grads).first.at("p"), {1, 2}, 0);
}

TEST(Transform, ClipIsOptaxs) {
  const Tree grads{{"a", array<float>({3, 0})}, {"b", array<float>({0, 4})}};
  auto [clipped, state] = clip_by_global_norm(1).update(grads, {}, grads);
  expect_near(clipped.at("a"), {0.6f, 0}, 1e-7);
  expect_near(clipped.at("b"), {0, 0.8f}, 1e-7);
  EXPECT_EQ(state.norm, 5);
  expect_near(clip_by_global_norm(5).update(grads, {}, grads).first.at("a"), {3, 0}, 1e-6);
  auto [same, unused] = clip_by_global_norm(5.1).update(grads, {}, grads);
  EXPECT_TRUE(same.at("a").is_same(grads.at("a")));
}

TEST(Transform, AChainInAChainIsLaidFlat) {
  const auto nested = chain(clip_by_global_norm(1), chain(identity(), adamw({.learning_rate = 0.1})));
  const auto flat = chain(clip_by_global_norm(1), identity(), scale_by_adam(), add_decayed_weights(1e-4),
                          scale_by_learning_rate(0.1));
  static_assert(std::is_same_v<decltype(nested), decltype(flat)>);
  expect_near(three_steps(nested), host(three_steps(flat)), 0);
  const auto state = nested.init(Tree{{"p", zeros({2})}});
  const nn::Leaves all = nn::leaves(state, "state");
  ASSERT_EQ(all.size(), 2);
  EXPECT_EQ(all[0].path, "state.2.mu.p");
  EXPECT_EQ(all[1].path, "state.2.nu.p");
}

TEST(Transform, AChainPassesUpdatesOn) {
  const Tree grads{{"p", array<float>({1, 2})}}, params{{"p", array<float>({10, 100})}};
  const auto tx = chain(scale(2), add_decayed_weights(0.1), scale(3));
  expect_near(tx.update(grads, tx.init(params), params).first.at("p"), {9, 42}, 1e-5);
}

TEST(Transform, AMaskChoosesWhatDecays) {
  const Tree params{{"b", ones({2})}, {"w", ones({2, 2})}};
  const Tree grads{{"b", zeros({2})}, {"w", zeros({2, 2})}};
  const auto matrices = add_decayed_weights(0.5, matrices_only).update(grads, {}, params).first;
  expect_near(matrices.at("b"), {0, 0}, 0);
  expect_near(matrices.at("w"), {.5f, .5f, .5f, .5f}, 0);
  const auto tx = adamw({.learning_rate = 1, .weight_decay = 0.5, .mask = [](const std::string& path, const Array&) {
                           return path == "b";
                         }});
  const auto by_path = tx.update(grads, tx.init(params), params).first;
  expect_near(by_path.at("b"), {-.5f, -.5f}, 0);
  expect_near(by_path.at("w"), {0, 0, 0, 0}, 0);
}

TEST(Transform, IntegersAndAbsentGradientsAreLeftAlone) {
  const Tree params{{"frozen", ones({2})}, {"i", array<int32_t>({7})}, {"w", ones({2})}};
  const Tree grads{{"frozen", {}}, {"i", {}}, {"w", ones({2})}};
  const auto tx = chain(clip_by_global_norm(1), adamw({.learning_rate = 0.1}));
  const auto [updates, state] = tx.update(grads, tx.init(params), params);
  const Tree updated = apply_updates(params, updates);
  EXPECT_TRUE(updated.at("i").is_same(params.at("i")));
  EXPECT_TRUE(updated.at("frozen").is_same(params.at("frozen")));
  EXPECT_TRUE(std::get<1>(state).mu.at("i").is_absent());
  EXPECT_LT(host(updated.at("w"))[0], 1);
}

TEST(Transform, HalfPrecisionParametersHaveFloat32Moments) {
  const Tree params{{"w", ones({2}, bfloat16)}};
  const auto tx = adam({.learning_rate = 0.5});
  const auto [updates, state] = tx.update(params, tx.init(params), params);
  EXPECT_EQ(std::get<0>(state).mu.at("w").dtype(), float32);
  const Tree updated = apply_updates(params, updates);
  EXPECT_EQ(updated.at("w").dtype(), bfloat16);
  expect_near(updated.at("w"), {.5f, .5f}, 1e-2);
}

TEST(Transform, ErrorsNameTheParameter) {
  const Tree params{{"b", ones({2})}, {"w", ones({2, 2})}};
  const Tree other{{"b", ones({2})}, {"w", ones({2, 3})}};
  EXPECT_EQ(
      error_of(ErrorKind::shape_mismatch, [&] { apply_updates(params, other); }),
      "[apply_updates] w: the update is float32[2,3], the parameter float32[2,2]. Both must come from the same model.");
  error_of(ErrorKind::shape_mismatch, [&] { add_decayed_weights(0.1).update(other, {}, params); });
  error_of(ErrorKind::shape_mismatch, [&] { scale_by_adam().update(other, scale_by_adam().init(params), params); });
  error_of(ErrorKind::invalid_argument, [&] { apply_updates(params, Tree{{"b", ones({2})}}); });
  error_of(ErrorKind::invalid_argument, [&] { apply_updates(params, Tree{{"b", ones({2})}, {"v", ones({2, 2})}}); });
}

TEST(Schedule, WarmupCosineWithoutWarmup) {
  EXPECT_EQ(warmup_cosine_decay_schedule({.peak_value = 1, .decay_steps = 10})(0), 1);
  EXPECT_EQ(warmup_cosine_decay_schedule({.peak_value = 0, .decay_steps = 10})(3), 0);
}

TEST(Schedule, NumbersAndFunctionsAreSchedules) {
  EXPECT_EQ(constant_schedule(0.3)(17), 0.3);
  EXPECT_EQ(Schedule(2)(5), 2);
  EXPECT_EQ(Schedule([](int64_t count) { return 0.5 * static_cast<double>(count); })(4), 2);
}

TEST(Schedule, WrongStepsAreErrors) {
  error_of(ErrorKind::invalid_argument,
           [] { warmup_cosine_decay_schedule({.peak_value = 1, .warmup_steps = 10, .decay_steps = 10}); });
  error_of(ErrorKind::invalid_argument,
           [] { warmup_cosine_decay_schedule({.peak_value = 1, .warmup_steps = -1, .decay_steps = 10}); });
  error_of(ErrorKind::invalid_argument, [] { warmup_cosine_decay_schedule({.warmup_steps = 1, .decay_steps = 10}); });
}

}  // namespace
}  // namespace tessera::optim::transform_test
