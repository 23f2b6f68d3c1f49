// The pure algebra: Optax's numbers, chains, masks, schedules.
#include "optim/transform.h"

#include <map>

#include "tests/optim/support.h"

namespace tessera::optim {
namespace {

using Tree = std::map<std::string, Array>;

// p = [1, -2, 3], g = 2p, three steps, as optax 0.2.8 has them: it rounds 1 - b2^t to float32, 2e-6 of a difference
// here.
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

TEST(Transform, AdamIsOptaxs) {
  expect_near(three_steps(adam({.learning_rate = 0.1})), {.7015883f, -1.7006254f, 2.7003837f}, optax_rounding);
}

TEST(Transform, AdamwIsOptaxs) {
  expect_near(three_steps(adamw({.learning_rate = 0.1})), {.7015615f, -1.7005686f, 2.7002966f}, optax_rounding);
}

TEST(Transform, EpsRootIsUnderTheRoot) {
  // optax.adam(0.1, eps_root=0.5)
  expect_near(three_steps(adam({.learning_rate = 0.1, .eps_root = 0.5})), {0.7201076f, -1.7054139f, 2.7025092f},
              optax_rounding);
}

TEST(Transform, SgdIsMinusRateTimesGradient) {
  expect_near(three_steps(sgd({.learning_rate = 0.1})), {0.512f, -1.024f, 1.536f}, 1e-6);
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
      error_of([&] { apply_updates(params, other); }, ErrorKind::shape_mismatch),
      "[apply_updates] w: the update is float32[2,3], the parameter float32[2,2]. Both must come from the same model.");
  error_of([&] { add_decayed_weights(0.1).update(other, {}, params); }, ErrorKind::shape_mismatch);
  error_of([&] { scale_by_adam().update(other, scale_by_adam().init(params), params); }, ErrorKind::shape_mismatch);
  error_of([&] { apply_updates(params, Tree{{"b", ones({2})}}); }, ErrorKind::bad_argument);
  error_of([&] { apply_updates(params, Tree{{"b", ones({2})}, {"v", ones({2, 2})}}); }, ErrorKind::bad_argument);
}

// The learning rates of tests/reference/transformer_gpt.json.
TEST(Schedule, WarmupCosineIsOptaxs) {
  const Schedule schedule = warmup_cosine_decay_schedule(
      {.init_value = 0, .peak_value = 1e-3, .warmup_steps = 5, .decay_steps = 30, .end_value = 1e-4});
  const std::vector<double> expected = {0.0,           0.00020000001, 0.00040000002, 0.0006,        0.00080000004,
                                        0.001,         0.0009964517,  0.0009858625,  0.00096839946, 0.00094433804,
                                        0.00091405766, 0.00087803596, 0.00083684083, 0.00079112203, 0.0007416007,
                                        0.0006890577,  0.0006343216,  0.00057825574, 0.00052174425, 0.00046567834,
                                        0.00041094233, 0.0003583993,  0.0003088779,  0.00026315922, 0.00022196413,
                                        0.00018594234, 0.00015566198, 0.00013160057, 0.00011413758, 0.00010354838};
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(schedule(static_cast<int64_t>(i)), expected[i], 1e-5 * expected[i] + 1e-8) << i;
  EXPECT_NEAR(schedule(30), 1e-4, 1e-12);
  EXPECT_NEAR(schedule(1000), 1e-4, 1e-12);
}

TEST(Schedule, WarmupCosineWithExponentAndWithoutWarmup) {
  const Schedule powered = warmup_cosine_decay_schedule(
      {.init_value = 0.2, .peak_value = 1, .warmup_steps = 4, .decay_steps = 12, .end_value = 0.1, .exponent = 2});
  const std::vector<double> at{
      0.19999998807907104, 0.3999999761581421,  0.6000000238418579,  0.800000011920929,   1.0,
      0.9327952861785889,  0.7556980848312378,  0.5301579833030701,  0.32499995827674866, 0.18574291467666626,
      0.11930195242166519, 0.10130371898412704, 0.10000000149011612, 0.10000000149011612};
  for (size_t i = 0; i < at.size(); ++i) EXPECT_NEAR(powered(static_cast<int64_t>(i)), at[i], 1e-6) << i;
  EXPECT_EQ(warmup_cosine_decay_schedule({.peak_value = 1, .decay_steps = 10})(0), 1);
  EXPECT_EQ(warmup_cosine_decay_schedule({.peak_value = 0, .decay_steps = 10})(3), 0);
}

TEST(Schedule, NumbersAndFunctionsAreSchedules) {
  EXPECT_EQ(constant_schedule(0.3)(17), 0.3);
  EXPECT_EQ(Schedule(2)(5), 2);
  EXPECT_EQ(Schedule([](int64_t count) { return 0.5 * static_cast<double>(count); })(4), 2);
}

TEST(Schedule, WrongStepsAreErrors) {
  error_of([] { warmup_cosine_decay_schedule({.peak_value = 1, .warmup_steps = 10, .decay_steps = 10}); },
           ErrorKind::bad_argument);
  error_of([] { warmup_cosine_decay_schedule({.peak_value = 1, .warmup_steps = -1, .decay_steps = 10}); },
           ErrorKind::bad_argument);
  error_of([] { warmup_cosine_decay_schedule({.warmup_steps = 1, .decay_steps = 10}); }, ErrorKind::bad_argument);
}

}  // namespace
}  // namespace tessera::optim
