// Wrong gradients, wrong models and numbers out of range: every error names the cause, and no update is partial.
#include <functional>
#include <map>

#include "nn/transformations/value_and_grad.h"
#include "optim/formulas/muon.h"
#include "optim/optimizer/contrib.h"
#include "optim/schedules/losses.h"
#include "tests/optim/support.h"

namespace tessera::optim::wrong_use_test {
namespace {

using Tree = std::map<std::string, Array>;

Array placed(const Array& x) {
  static const Mesh mesh = make_mesh({{"data", 2}});
  return device_put(x, NamedSharding(mesh, P{}));
}
Tree model() {
  return {{"b", placed(array<float>({1, -2}))},
          {"t", placed(normal(Key(1), {4, 2}))},
          {"w", placed(normal(Key(2), {4, 4}))}};
}
Tree gradients_of(const Tree& model) {
  Tree grads = model;
  for (auto& [name, g] : grads) g = 0.5 * g;
  return grads;
}

auto two_groups(const Schedule& rate) {
  return partition(by_dims, "matrix", adamw({.learning_rate = 0.1, .mask = matrices_only}), "vector",
                   chain(clip_by_global_norm(1), sgd({.learning_rate = rate, .momentum = 0.9})));
}

// Runs f(transform) for each way in which updates are computed.
template <class F>
void every_way(F f) {
  const auto named = [&](const char* name, const auto& transform) {
    SCOPED_TRACE(name);
    f(transform);
  };
  named("fused", chain(clip_by_global_norm(1), adamw({.learning_rate = 0.1, .mask = matrices_only})));
  named("pure", lion({.learning_rate = 0.1}));
  named("parts fused", two_groups(0.1));
  named("parts of both kinds", muon({.learning_rate = 0.1}));
  named("accumulated", accumulate(adam({.learning_rate = 0.1}), 2));
  named("injected", inject_hyperparams([](const Hyperparams& h) { return adam({.learning_rate = h["rate"]}); },
                                       {{"rate", [](int64_t count) { return 0.1 / static_cast<double>(1 + count); }}}));
  named("if finite", apply_if_finite(chain(scale(0.5), sgd({.learning_rate = 0.1})), 2));
}

// All values of a tree, by path.
template <class T>
std::map<std::string, std::vector<float>> values_of(T& tree) {
  std::map<std::string, std::vector<float>> values;
  for (const nn::Leaf& leaf : nn::leaves(tree))
    if (!leaf.value->is_absent()) values[leaf.path] = host(*leaf.value);
  return values;
}

struct Mistake {
  std::string name;
  std::function<void(Tree& model, Tree& grads)> make;
  ErrorKind kind;
  std::string message;
};

const std::vector<Mistake>& mistakes() {
  static const Mesh other = make_mesh({{"data", 4}});
  static const std::string same = " Both must come from the same model.";
  static const std::vector<Mistake> all = {
      {"a gradient of another shape", [](Tree&, Tree& g) { g["w"] = placed(ones({4, 5})); }, ErrorKind::shape_mismatch,
       "w: the gradient is float32[4,5], the parameter float32[4,4]." + same},
      {"a gradient that broadcasts", [](Tree&, Tree& g) { g["w"] = placed(ones({})); }, ErrorKind::shape_mismatch,
       "w: the gradient is float32[], the parameter float32[4,4]." + same},
      {"a gradient too few", [](Tree&, Tree& g) { g.erase("w"); }, ErrorKind::invalid_argument,
       "the gradient has 2 arrays, the model 3." + same},
      {"a gradient too many", [](Tree&, Tree& g) { g["x"] = g["w"]; }, ErrorKind::invalid_argument,
       "the gradient has 4 arrays, the model 3." + same},
      {"a gradient of another name",
       [](Tree&, Tree& g) {
         g["a"] = g["b"];
         g.erase("b");
       },
       ErrorKind::invalid_argument, "b: the gradient has the array a in its place." + same},
      {"a gradient of another element type", [](Tree&, Tree& g) { g["t"] = astype(g["t"], bfloat16); },
       ErrorKind::dtype_mismatch,
       "t: the gradient is bfloat16[4,2], the parameter float32[4,2]. Both must have the same floating element type; "
       "an integer's gradient is absent."},
      {"a gradient on another mesh",
       [](Tree&, Tree& g) { g["t"] = device_put(ones({4, 2}), NamedSharding(other, P{})); }, ErrorKind::device_mismatch,
       "t: the gradient is on data=4, the parameter on data=2. Move the gradients with nn::filter_shard(grads, "
       "mesh_rules), or compute them from the model on that mesh."},
      {"a gradient of what is absent", [](Tree& m, Tree&) { m["t"] = {}; }, ErrorKind::missing_array,
       "t: the gradient is float32[4,2], the parameter is absent."},
      {"a model that grew", [](Tree& m, Tree& g) { m["x"] = g["x"] = placed(ones({2})); }, ErrorKind::invalid_argument,
       "the model has 4 arrays, the one that this optimizer was made for 3. Make a new optimizer."},
      {"a model that doubled",
       [](Tree& m, Tree& g) {
         for (const char* name : {"x", "y", "z"}) m[name] = placed(ones({2})), g[name] = placed(ones({2}));
       },
       ErrorKind::invalid_argument,
       "the model has 6 arrays, the one that this optimizer was made for 3. Make a new optimizer."},
      {"a model that shrank",
       [](Tree& m, Tree& g) {
         m.erase("b");
         g.erase("b");
       },
       ErrorKind::invalid_argument,
       "t: the model that this optimizer was made for has b in its place. Make a new optimizer."},
      {"a parameter of another shape", [](Tree& m, Tree& g) { m["b"] = placed(ones({3})), g["b"] = placed(ones({3})); },
       ErrorKind::shape_mismatch,
       "b: the parameter is float32[3], it was of shape (2) when this optimizer was made. Make a new one."},
  };
  return all;
}

TEST(WrongUse, IsRefusedAndChangesNothing) {
  every_way([](const auto& transform) {
    for (const Mistake& mistake : mistakes()) {
      SCOPED_TRACE(mistake.name);
      Tree params = model();
      Optimizer optimizer(params, transform);
      optimizer.update(params, gradients_of(params));
      Tree grads = gradients_of(params);
      mistake.make(params, grads);
      const auto before = values_of(params), state = values_of(optimizer);
      EXPECT_EQ(error_of(mistake.kind, [&] { optimizer.update(params, grads); }),
                "[Optimizer.update] " + mistake.message);
      EXPECT_EQ(values_of(params), before);
      EXPECT_EQ(values_of(optimizer), state);
      EXPECT_EQ(optimizer.count(), 1);
    }
  });
}

TEST(WrongUse, AModelMovedToAnotherMeshIsRefused) {
  const Mesh other = make_mesh({{"rows", 2}});
  every_way([&](const auto& transform) {
    Tree params = model();
    Optimizer optimizer(params, transform);
    optimizer.update(params, gradients_of(params));
    if (nn::leaves(optimizer).empty() || values_of(optimizer).empty()) return;  // no state on a mesh
    for (auto& [name, p] : params) p = device_put(p, NamedSharding(other, P{}));
    const auto before = values_of(params);
    const std::string words =
        error_of(ErrorKind::device_mismatch, [&] { optimizer.update(params, gradients_of(params)); });
    EXPECT_NE(words.find("the state is on "), std::string::npos) << words;
    EXPECT_EQ(values_of(params), before);
  });
}

TEST(WrongUse, AModelThatWasNeverPlacedIsRefusedByAStateThatWas) {
  const Tree unplaced{{"b", ones({2})}, {"t", ones({4, 2})}, {"w", ones({4, 4})}};
  every_way([&](const auto& transform) {
    Tree params = model();
    Optimizer optimizer(params, transform);
    optimizer.update(params, gradients_of(params));
    auto state = transform.init(params);
    if (nn::leaves(state).empty()) return;  // no state on a mesh
    params = unplaced;
    const auto in_place = [&] { optimizer.update(params, gradients_of(params)); };
    const auto pure = [&] { state = transform.update(gradients_of(params), std::move(state), params).second; };
    for (const std::function<void()>& update : {std::function<void()>(in_place), std::function<void()>(pure)}) {
      const std::string words = error_of(ErrorKind::device_mismatch, [&] { update(), update(); });
      EXPECT_NE(words.find("the parameter was never placed."), std::string::npos) << words;
    }
    for (const auto& [name, p] : params) EXPECT_TRUE(p.is_same(unplaced.at(name))) << name;
  });
}

// Updates are not differentiated. Arrays that value_and_grad records are refused; others are updated as usual.
TEST(WrongUse, WhatIsRecordedIsNotUpdated) {
  every_way([](const auto& transform) {
    Tree params = model();
    const Tree constant = gradients_of(params);
    Optimizer optimizer(params, transform);
    const auto before = values_of(params), state = values_of(optimizer);
    const auto error_within = [&](auto update) {
      return error_of(ErrorKind::no_gradient,
                      [&] { nn::grad([&](const Tree& m) { return update(m), sum(m.at("w")); })(params); });
    };
    const std::string advice =
        " is recorded by value_and_grad, and updates are not differentiated. Update after value_and_grad has returned.";
    EXPECT_EQ(error_within([&](Tree m) { optimizer.update(m, constant); }),
              "[Optimizer.update] b: float32[2]" + advice);
    EXPECT_EQ(error_within([&](const Tree& m) { optimizer.update(params, gradients_of(m)); }),
              "[Optimizer.update] b: float32[2]" + advice);
    EXPECT_EQ(error_within([&](const Tree& m) { apply_updates(m, constant); }),
              "[apply_updates] b: float32[2]" + advice);
    EXPECT_TRUE(error_within([&](const Tree& m) {
                  transform.update(gradients_of(m), transform.init(params), params);
                }).ends_with(advice));
    EXPECT_EQ(values_of(params), before);
    EXPECT_EQ(values_of(optimizer), state);

    const Tree grads = nn::grad([&](const Tree& m) {
      for (int i = 0; i < 2; ++i) optimizer.update(params, constant);
      return sum(square(m.at("w")));
    })(params);
    EXPECT_NE(values_of(params), before);
    expect_near(grads.at("w"), host(2.0 * model().at("w")), 1e-6);
  });
}

TEST(WrongUse, TwoParametersThatBecameOneAreNamed) {
  std::vector<Array> params{ones({2}) * 1.0, ones({2}) * 2.0};
  Optimizer optimizer(params, adam({.learning_rate = 0.1}));
  params[1] = params[0];
  const std::string words =
      error_of(ErrorKind::invalid_argument, [&] { optimizer.update(params, {ones({2}), ones({2})}); });
  EXPECT_TRUE(words.starts_with("[Optimizer.update] ")) << words;
  error_of(ErrorKind::invalid_argument, [&] { Optimizer(params, adam({.learning_rate = 1})); });
  EXPECT_EQ(host(params[0]), (std::vector<float>{1, 1}));
}

// If the second part of a partition cannot be updated, the first one is not updated either.
TEST(WrongUse, AScheduleThatIsNoNumberInOnePartChangesNone) {
  Tree params = model();
  Optimizer optimizer(params, two_groups([](int64_t count) { return count == 2 ? NAN : 0.1; }));
  for (int i = 0; i < 2; ++i) optimizer.update(params, gradients_of(params));
  const auto before = values_of(params), state = values_of(optimizer);
  EXPECT_EQ(error_of(ErrorKind::invalid_argument, [&] { optimizer.update(params, gradients_of(params)); }),
            "[scale_by_learning_rate] learning_rate: the schedule is nan at count 2, expected a number. Nothing was "
            "updated.");
  EXPECT_EQ(values_of(params), before);
  EXPECT_EQ(values_of(optimizer), state);
}

struct Setting {
  std::function<void()> make;
  std::string message;
};

TEST(WrongUse, NumbersOutOfRangeAreRefused) {
  const std::vector<Setting> settings = {
      {[] { muon({.learning_rate = 0.1, .adam_learning_rate = NAN}); },
       "[muon] adam_learning_rate: nan given, expected a number."},
      {[] { lookahead(identity(), 0, 0.5); }, "[lookahead] sync_period: 0 given, expected at least 1."},
      {[] { lookahead(identity(), 2, NAN); }, "[lookahead] slow_step_size: nan given, expected slow_step_size >= 0."},
      {[] { cosine_similarity(ones({2}), ones({2}), -1); },
       "[cosine_similarity] epsilon: -1 given, expected epsilon >= 0."},
      {[] { apply_if_finite(identity(), -1); },
       "[apply_if_finite] max_consecutive_errors: -1 given, expected at least 0."},
      {[] { linear_schedule({.init_value = 1, .end_value = 0, .transition_steps = -5}); },
       "[linear_schedule] transition_steps: -5 given, expected at least 1."},
      {[] { linear_schedule({.init_value = 1, .end_value = 0, .transition_steps = 5, .transition_begin = -1}); },
       "[linear_schedule] transition_begin: -1 given, expected at least 0."},
      {[] { cosine_decay_schedule({.init_value = 1, .decay_steps = 0}); },
       "[cosine_decay_schedule] decay_steps: 0 given, expected at least 1."},
      {[] { warmup_cosine_decay_schedule({.peak_value = 1, .warmup_steps = 10, .decay_steps = 10}); },
       "[warmup_cosine_decay_schedule] warmup_steps = 10, decay_steps = 10, expected 0 <= warmup_steps < decay_steps: "
       "decay_steps is the length of the whole schedule, warmup included."},
      {[] { warmup_stable_decay_schedule({.peak_value = 1, .stable_steps = 5}); },
       "[warmup_stable_decay_schedule] decay_steps: 0 given, expected at least 1."},
      {[] { warmup_stable_decay_schedule({.stable_steps = 5, .decay_steps = 5}); },
       "[warmup_stable_decay_schedule] no peak_value given, expected a number."},
      {[] { exponential_decay({.init_value = 1, .transition_steps = 1, .decay_rate = 0}); },
       "[exponential_decay] decay_rate: 0 given, expected decay_rate > 0."},
      {[] { piecewise_constant_schedule({.init_value = 1, .boundaries_and_scales = {{3, -1}}}); },
       "[piecewise_constant_schedule] boundaries_and_scales: -1 given at 3, expected a scale >= 0."},
      {[] { clip_by_global_norm(0); }, "[clip_by_global_norm] max_norm 0 given, expected above 0."},
      {[] {
         Tree params{{"p", ones({2})}};
         Optimizer(params, adafactor({.learning_rate = 0.1, .decay_offset = 3})).update(params, Tree(params));
       },
       "[scale_by_factored_rms] step_offset: 3 given at update 1, expected less than its number."},
      {[] {
         const Tree params{{"p", ones({2})}};
         Optimizer(params, adam({.learning_rate = 0.1, .mu_dtype = int32}));
       },
       "[init] int32 given for a state, expected a floating element type."},
      {[] {
         Tree params{{"p", ones({2})}};
         Optimizer optimizer(params, adam({.learning_rate = 0.1}));
         std::get<0>(optimizer.state()).count = -4;
         optimizer.update(params, Tree(params));
       },
       "[scale_by_adam] the state's count is -4, expected 0 or more. Nothing was updated."},
      {[] { schedule_free(sgd({.learning_rate = 0.1}), 0.1, 1.0); },
       "[schedule_free] b1: 1 given, expected 0 <= b1 < 1."},
      {[] { adaptive_grad_clip(0.1, 1e-3, Dims{}); },
       "[adaptive_grad_clip] dims: none given, expected one or more, or no `dims`."},
      {[] {
         Tree params{{"p", ones({2})}};
         Optimizer(params, ademamix({.learning_rate = 0.1, .alpha = [](int64_t) { return NAN; }}))
             .update(params, Tree(params));
       },
       "[scale_by_ademamix] alpha: the schedule is nan at count 0, expected a number. Nothing was updated."},
      {[] { ademamix({.learning_rate = 0.1, .b3 = 7}); }, "[ademamix] b3: 7 given, expected 0 <= b3 < 1."},
      {[] {
         Tree params{{"p", ones({2})}};
         Optimizer(params, ademamix({.learning_rate = 0.1, .b3 = [](int64_t) { return 7.0; }}))
             .update(params, Tree(params));
       },
       "[scale_by_ademamix] b3: 7 given, expected 0 <= b3 < 1."},
      {[] { adopt({.learning_rate = 0.1, .clip_value = -1.0}); },
       "[adopt] clip_value: -1 given, expected clip_value >= 0."}};
  for (const Setting& setting : settings)
    EXPECT_EQ(error_of(ErrorKind::invalid_argument, setting.make), setting.message);
}

TEST(WrongUse, PureUpdatesRefuseStatesOfAnotherModel) {
  const std::vector<Array> two{ones({2}), ones({3})}, four{ones({2}), ones({3}), ones({2}), ones({3})},
      wide{ones({2}), ones({1})};
  const auto tx = scale_by_adam();
  EXPECT_EQ(
      error_of(ErrorKind::invalid_argument, [&] { tx.update(four, tx.init(two), four); }),
      "[scale_by_adam] the state has 4 arrays, the model 4, expected 2 times as many. Both must come from the same "
      "model.");
  EXPECT_EQ(
      error_of(ErrorKind::shape_mismatch, [&] { tx.update(wide, tx.init(two), wide); }),
      "[scale_by_adam] 1: float32[3] given for float32[1]: the state was made for a parameter of another shape, or "
      "the formula changes it. Make a new state.");
}

// Models with unusual element types and shapes, and without arrays: updates in place equal the pure transform.
const std::map<std::string, Tree>& models() {
  static const std::map<std::string, Tree> all = {
      {"none", {}},
      {"integers", {{"ids", array<int32_t>({1, 2})}}},
      {"scalar", {{"p", array<float>({3}, {})}}},
      {"empty", {{"e", ones({0, 4})}, {"p", normal(Key(1), {2, 3})}, {"z", ones({0})}}},
      {"bfloat16", {{"p", normal(Key(1), {4, 4}, bfloat16)}, {"q", normal(Key(2), {3})}}},
      {"float16", {{"p", normal(Key(1), {4, 4}, float16)}}},
      {"float64", {{"p", astype(normal(Key(1), {4, 4}), float64)}, {"q", normal(Key(2), {3})}}},
  };
  return all;
}

TEST(UnusualModels, AreUpdatedAsByThePureAlgebra) {
  every_way([](const auto& transform) {
    for (const auto& [name, made] : models()) {
      SCOPED_TRACE(name);
      Tree params = made, pure = made;
      Optimizer optimizer(params, transform);
      auto state = transform.init(pure);
      for (int i = 0; i < 4; ++i) {
        Tree grads = gradients_of(params);
        for (auto& [path, g] : grads)
          if (params.at(path).dtype() == int32) g = {};
        auto [updates, next] = transform.update(grads, state, pure);
        pure = apply_updates(pure, updates);
        state = std::move(next);
        optimizer.update(params, grads);
      }
      for (const auto& [path, p] : params) {
        EXPECT_EQ(p.dtype(), made.at(path).dtype()) << path;
        expect_near(p, host(pure.at(path)), item_size(p.dtype()) < 4 ? 0.05 : 1e-5, path);
      }
    }
  });
}

// Compares two numbers; NaN equals NaN.
void expect_alike(const std::vector<float>& got, const std::vector<float>& expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    const bool same = got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i]));
    EXPECT_TRUE(same || std::abs(got[i] - expected[i]) < 1e-5f) << what << " at " << i;
  }
}

// Infinities and NaN spread as in the pure transform, which optimizers_nonfinite.json checks.
TEST(NotFinite, InPlaceAsByThePureAlgebra) {
  const auto make_wrong = [](Tree grads, int step) {
    if (step == 1) grads["b"] = grads["b"] / 0.0;
    if (step == 3) grads["w"] = where(grads["w"] > 0.5, NAN, grads["w"]);
    return grads;
  };
  every_way([&](const auto& transform) {
    Tree params = model(), pure = params;
    Optimizer optimizer(params, transform);
    auto state = transform.init(pure);
    for (int step = 0; step < 6; ++step) {
      const Tree grads = make_wrong(gradients_of(model()), step);
      auto [updates, next] = transform.update(grads, state, pure);
      pure = apply_updates(pure, updates);
      state = std::move(next);
      optimizer.update(params, grads);
      for (const auto& [path, p] : params) expect_alike(host(p), host(pure.at(path)), path);
    }
  });
}

TEST(WrongState, OfAnotherShapeIsRefused) {
  const optim::ScaleByFactoredRms tx{.min_dim_size_to_factor = 2};
  const Tree square{{"w", ones({4, 3})}};
  for (const Shape& shape : std::vector<Shape>{{12}, {4, 2}, {2, 3}}) {
    const Tree other{{"w", ones(shape)}};
    testing::expect_error(ErrorKind::shape_mismatch,
                          "[scale_by_factored_rms] w: " + other.at("w").type_string() +
                              " given for a state of float32[3] and float32[4], which was made for a parameter of "
                              "another shape. Make a new state.",
                          [&] { tx.update(other, tx.init(square), other); });
  }
}

// A NaN among the gradients reaches the parameters at the boundary. Then accumulation starts again from zero.
TEST(NotFinite, AccumulatedGradientsAreAppliedAtTheBoundary) {
  const auto transform = accumulate(sgd({.learning_rate = 0.5}), 2);
  const Array one = array<float>({1, 1}), wrong = array<float>({1, NAN}), zero = array<float>({0, 0});
  auto state = transform.init(one);
  const auto next = [&](const Array& gradient) {
    auto [update, after] = transform.update(gradient, state, one);
    state = std::move(after);
    return host(update);
  };
  EXPECT_EQ(next(wrong), host(zero));
  const std::vector<float> applied = next(one);
  EXPECT_EQ(applied[0], -0.5f);
  EXPECT_TRUE(std::isnan(applied[1]));
  EXPECT_EQ(next(one), host(zero));
  EXPECT_EQ(next(one), host(-0.5 * one));
}

// Gradients have the model's type, so update(grads, model) compiles.
TEST(Swapped, GradientsInTheModelsPlaceAreRefused) {
  Tree params = model();
  Optimizer optimizer(params, sgd({.learning_rate = 0.1}));
  const auto loss_of = [](const Tree& tree) {
    return sum(tree.at("b") * tree.at("b")) + sum(tree.at("w")) + sum(tree.at("t"));
  };
  auto [loss, grads] = nn::value_and_grad(loss_of)(params);
  const auto before = values_of(grads);
  testing::expect_error(ErrorKind::invalid_argument,
                        "[Optimizer.update] b: a gradient is given where the model belongs, expected "
                        "update(model, grads), the model first.",
                        [&, &gradients = grads] { optimizer.update(gradients, params); });
  EXPECT_EQ(values_of(grads), before);
  optimizer.update(params, grads);
}

}  // namespace
}  // namespace tessera::optim::wrong_use_test
