// value_and_grad with a filter for the trained arrays, grad, and remat policies.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "nn/layers/attention.h"
#include "nn/layers/batch_norm.h"
#include "nn/layers/module_scope.h"
#include "nn/layers/norm.h"
#include "nn/transformations/accumulate_gradients.h"
#include "nn/transformations/eval_shape.h"
#include "sharding/accounting/forecast.h"
#include "sharding/accounting/ledger.h"
#include "tests/nn/transformations/models.h"

namespace tessera::nn::trained_test {
namespace {

using namespace testing;

std::pair<Array, Array> mse_with_aux(const Mlp& model, const Batch& batch) {
  const Array loss = mse(model, batch);
  return {loss, loss * 2};
}

// ---- trained arrays

TEST(Trained, OnlyWhatTheFilterTakesHasAGradient) {
  for (const auto& [name, mesh_rules] : strategies()) {
    const Mlp model = filter_shard(make_mlp(), mesh_rules);
    const Batch batch = filter_shard(make_batch(), mesh_rules);
    const auto [all_loss, all] = value_and_grad(mse)(model, batch);
    for (const Filter& trained :
         {Filter(by_path("down.**")), by_axis("embed"), Filter(is_param), !by_path("up.bias")}) {
      const auto [loss, grads] = value_and_grad(mse, trained)(model, batch);
      expect_near(loss, all_loss, 1e-6, name);
      expect_trees_near(grads, filter(all, trained), 1e-6, name);
      const auto [mean_loss, mean_grads] = accumulate_gradients(mse, 2, trained)(model, batch);
      if (mesh_rules.mesh().size() == 1) expect_trees_near(mean_grads, filter(all, trained), 1e-5, name);
    }
  }
}

// The FLOPs of a call with the model and the batch.
template <class F>
double flops_of(F call) {
  const MeshRules mesh_rules{make_mesh({{"data", 1}}, {.abstract = true}),
                             {{"batch", "data"}, {"embed", replicated}, {"hidden", replicated}}};
  const Mlp model = filter_shard(make_mlp(), mesh_rules);
  const Batch batch = filter_shard(make_batch(), mesh_rules);
  Forecast forecast;
  call(model, batch);
  return forecast.flops();
}
constexpr double product = 2.0 * 8 * 4 * 8;  // the batch times one kernel

TEST(Trained, NoBackwardWorkForTheRest) {
  const auto flops = [](const Filter& trained) { return flops_of(value_and_grad(mse, trained)); };
  EXPECT_EQ(flops(is_trainable), (2 + 3) * product);  // forward 2; gradients of both kernels and the hidden layer 3
  EXPECT_EQ(flops(by_path("down.**")), (2 + 1) * product);
  EXPECT_EQ(flops(by_path("up.**")), (2 + 2) * product);
}

TEST(Trained, NothingToTrain) {
  expect_error(
      ErrorKind::invalid_argument,
      "[value_and_grad] the filter selects none of the 4 arrays of the model that could be trained, the first of "
      "which is up.kernel. Print nn::leaves(model) for their paths.",
      [] { value_and_grad(mse, by_path("head.**"))(make_mlp(), make_batch()); });
}

TEST(Grad, IsTheGradientAlone) {
  const Mlp model = make_mlp();
  const auto [loss, grads] = value_and_grad(mse)(model, make_batch());
  expect_trees_near(grad(mse)(model, make_batch()), grads, 0, "grad");
  const auto [same, aux] = grad(mse_with_aux)(model, make_batch());
  expect_trees_near(same, grads, 0, "with aux");
  expect_near(aux, loss * 2, 1e-6, "aux");
  expect_trees_near(grad(mse, by_path("up.**"))(model, make_batch()), filter(grads, by_path("up.**")), 0, "filtered");
}

TEST(Aux, OfEachMicroBatch) {
  const Mlp model = make_mlp();
  const auto [value, grads] = accumulate_gradients(mse_with_aux, 4)(model, make_batch());
  ASSERT_EQ(value.second.size(), 4u);
  expect_near((value.second[0] + value.second[1] + value.second[2] + value.second[3]) / 8, value.first, 1e-6, "aux");
  expect_trees_near(grads, grad(mse)(model, make_batch()), 1e-5, "gradients");
  EXPECT_EQ(accumulate_gradients(mse_with_aux, 1)(model, make_batch()).first.second.size(), 1u);
}

// ---- remat's policies

TEST(RematPolicy, TheSameGradients) {
  for (const auto& [name, mesh_rules] : strategies()) {
    const Mlp model = filter_shard(make_mlp(), mesh_rules);
    const Batch batch = filter_shard(make_batch(), mesh_rules);
    const auto [loss, grads] = value_and_grad(mse)(model, batch);
    for (const RematPolicy policy :
         {RematPolicy::nothing_saveable, RematPolicy::dots_saveable, RematPolicy::everything_saveable}) {
      const auto again = [policy](const Mlp& m, const Batch& b) {
        return mean(square(nn::remat(m, policy)(b.x.value) - b.y));
      };
      const auto [same_loss, same] = value_and_grad(again)(model, batch);
      expect_near(same_loss, loss, 1e-6, name);
      expect_trees_near(same, grads, 1e-6, name);
    }
  }
}

TEST(RematPolicy, ProductsAreNotRepeated) {
  const auto measure = [](std::optional<RematPolicy> policy) {
    return flops_of(value_and_grad([policy](const Mlp& m, const Batch& b) {
      return mean(square((policy ? nn::remat(m, *policy)(b.x.value) : m(b.x)) - b.y));
    }));
  };
  EXPECT_EQ(measure({}), 5 * product);
  EXPECT_EQ(measure(RematPolicy::everything_saveable), 5 * product);
  EXPECT_EQ(measure(RematPolicy::dots_saveable), 5 * product);
  EXPECT_EQ(measure(RematPolicy::nothing_saveable), 7 * product);
}

// LibTorch uses a different algorithm if a gradient is needed.
TEST(RematPolicy, ProductsThatAreMadeOtherwiseTheSecondTime) {
  const Array w = normal(Key(1), {5, 3}), x = normal(Key(2), {2, 5, 4});
  const auto mixed = [](const Array& w, const Array& x) { return matmul(transpose(x, {0, 2, 1}), w); };
  const auto loss = [&](std::optional<RematPolicy> policy) {
    return nn::grad<0>([=](const Array& w, const Array& x) {
      return sum(square(policy ? nn::remat(mixed, *policy)(w, x) : mixed(w, x)));
    })(w, x);
  };
  EXPECT_LE(testing::difference(loss(RematPolicy::dots_saveable), loss({})), 1e-5);
}

Array product_of(const Array& w, const Array& x) { return matmul(x, w); }

// Two products with equal shapes, which a wrong lookup could confuse.
template <RematPolicy inner>
Array products(const Array& w1, const Array& w2, const Array& x) {
  return tanh(matmul(tanh(nn::remat(product_of, inner)(w1, x)), w2));
}

TEST(RematPolicy, OfAProductWithinAnother) {
  const Array w1 = normal(Key(1), {4, 4}), w2 = normal(Key(2), {4, 4}), x = normal(Key(3), {4, 4});
  const auto gradients = [&](const auto& layers) {
    return nn::grad<0, 1>([&](const Array& w1, const Array& w2) { return sum(square(layers(w1, w2, x))); })(w1, w2);
  };
  const auto [first, second] = gradients(
      [](const Array& w1, const Array& w2, const Array& x) { return tanh(matmul(tanh(matmul(x, w1)), w2)); });
  const auto expect_same = [&, &first = first, &second = second](auto layers) {
    for (const RematPolicy policy : {RematPolicy::nothing_saveable, RematPolicy::dots_saveable}) {
      const auto [same_first, same_second] = gradients(nn::remat(layers, policy));
      EXPECT_LE(testing::difference(same_first, first), 1e-5);
      EXPECT_LE(testing::difference(same_second, second), 1e-5);
    }
  };
  expect_same(products<RematPolicy::nothing_saveable>);
  expect_same(products<RematPolicy::dots_saveable>);
}

TEST(RematPolicy, AFunctionThatDoesNotDoTheSame) {
  static int calls = 0;
  calls = 0;
  const auto fickle = [](const Mlp& m, const Array& x) { return ++calls == 1 ? m(x) : m.up(x) * 2; };
  const auto loss = [&](const Mlp& m, const Batch& b) {
    return mean(square(nn::remat(fickle, RematPolicy::dots_saveable)(m, b.x.value)));
  };
  EXPECT_THROW(value_and_grad(loss)(make_mlp(), make_batch()), std::exception);
}

// ---- eval_shape

TEST(EvalShape, ShapesAndPlacementsWithoutData) {
  const Array logits = eval_shape(make_mlp(), zeros({32, 4}));
  EXPECT_EQ(logits.shape(), (Shape{32, 4}));
  EXPECT_EQ(logits.dtype(), float32);
  const Array large = zeros({int64_t{1} << 40, 4});
  EXPECT_EQ(eval_shape(make_mlp(), large).shape(), (Shape{int64_t{1} << 40, 4}));
  for (const auto& [name, mesh_rules] : strategies()) {
    const Mlp model = filter_shard(make_mlp(), mesh_rules);
    const Batch batch = filter_shard(make_batch(), mesh_rules);
    const auto values = [](const Mlp& m, const Batch& b) { return std::pair(m(b.x), mse(m, b)); };
    const auto [shape, loss] = eval_shape(values, model, batch);
    const auto [expected, expected_loss] = values(model, batch);
    EXPECT_EQ(shape.type_string(), expected.type_string()) << name;
    EXPECT_EQ(loss.type_string(), expected_loss.type_string()) << name;
    EXPECT_TRUE(shape.sharding().mesh().is_abstract()) << name;
    EXPECT_FALSE(model.up.kernel.value.sharding().mesh().is_abstract()) << name;
  }
}

TEST(EvalShape, TakesGradientsThatArePartialSums) {
  const MeshRules mesh_rules(make_mesh({{"data", 2}}), {{"embed", replicated}, {"hidden", replicated}});
  const Linear model = filter_shard(Linear::init(Key(0), {"embed", 4}, {"hidden", 4}), mesh_rules);
  const Array x = device_put(ones({8, 4}), NamedSharding(mesh_rules.mesh(), P{"data"}));
  const auto loss = [](const Linear& m, const Array& x) { return mean(square(m(x))); };
  const Linear grads = value_and_grad(loss, {.reduce = false})(model, x).second;
  const Linear twin = eval_shape([](const Linear& g) { return g; }, grads);
  EXPECT_EQ(twin.kernel.value.type_string(), grads.kernel.value.type_string());
}

TEST(EvalShape, OfAWholeStep) {
  const Mlp grads = eval_shape([](const Mlp& m, const Batch& b) { return grad(mse)(m, b); }, make_mlp(), make_batch());
  EXPECT_EQ(grads.up.kernel.value.shape(), (Shape{4, 8}));
}

// ---- module scopes

struct Inner {
  Linear up;
  Array operator()(const Array& x) const {
    const ModuleScope scope(*this);
    const Array h = up(x);
    return with_sharding_constraint(h * 2, P{none, none});
  }
};
struct Outer {
  std::vector<Inner> layers;
};
Outer make_outer() {
  return {.layers = {{Linear::init(Key(0), {"embed", 4}, {"hidden", 8})},
                     {Linear::init(Key(1), {"embed", 4}, {"hidden", 8})}}};
}

TEST(ModuleScope, LedgersNameTheModule) {
  const MeshRules mesh_rules = strategies()[2].mesh_rules;  // tensor parallel
  const Outer model = filter_shard(make_outer(), mesh_rules);
  const Array x = device_put(normal(Key(1), {8, 4}), {"batch", "embed"}, mesh_rules);
  CommLedger ledger;
  grad([](const Outer& m, const Array& x) { return sum(square(m.layers[1](x))); })(model, x);
  ASSERT_FALSE(ledger.records().empty());
  bool gathers = false;
  for (const CommRecord& record : ledger.records())
    if (record.kind == "all_gather") {
      gathers = true;
      EXPECT_EQ(record.path, "layers.1") << record.operation;
    }
  EXPECT_TRUE(gathers);
}

struct Norms {
  std::vector<GroupNorm> groups;
  std::vector<BatchNorm> batches;
  MultiheadAttention attention;
};
Norms placed_norms(const MeshRules& mesh_rules) {
  const Axis hidden{"hidden", 8}, heads{"heads", 8};
  return filter_shard(Norms{.groups = {GroupNorm::init(hidden, 1), GroupNorm::init(hidden, 1)},
                            .batches = {BatchNorm::init(hidden), BatchNorm::init(hidden)},
                            .attention = MultiheadAttention::init(Key(0), hidden, heads, 2)},
                      mesh_rules);
}
MeshRules cut_both() {
  return {make_mesh({{"data", 2}, {"model", 2}}),
          {{"batch", "data"}, {"hidden", "model"}, {"heads", replicated}, {"seq", replicated}}};
}

// Means over sharded dimensions are all-reduced, forward and backward, without a parameter that would name the module.
TEST(ModuleScope, LayersOpenTheirOwn) {
  const MeshRules mesh_rules = cut_both();
  Norms model = placed_norms(mesh_rules);
  const Array x = device_put(normal(Key(1), {8, 8}), {"batch", "hidden"}, mesh_rules);
  const auto paths = [&](const auto& call) {
    CommLedger ledger;
    grad([&](Norms& m, const Array& x) { return sum(square(call(m, x))); })(model, x);
    std::set<std::string> of_sums;
    for (const CommRecord& record : ledger.records())
      if (record.path.starts_with("groups") || record.path.starts_with("batches"))
        of_sums.insert(record.path);
      else
        EXPECT_TRUE(record.operation == "loss" || record.operation == "value_and_grad") << record.operation;
    return of_sums;
  };
  EXPECT_TRUE(paths([](Norms& m, const Array& x) { return m.groups[1](x); }).contains("groups.1"));
  EXPECT_TRUE(paths([](Norms& m, const Array& x) { return m.batches[0](x); }).contains("batches.0"));
}

TEST(ModuleScope, ErrorsInsideLayersNameTheLayer) {
  const Norms model = placed_norms(cut_both());
  expect_error(ErrorKind::shape_mismatch,
               "[GroupNorm] groups.1: given float32[8], expected (batch, spatial dims..., features).",
               [&] { model.groups[1](ones({8})); });
  expect_error(ErrorKind::shape_mismatch,
               "[MultiheadAttention] attention: given float32[2,8], expected (batch, seq, embed).", [&] {
                 model.attention(ones({2, 8}));
               });
}

TEST(ModuleScope, ErrorsNameTheModule) {
  const MeshRules mesh_rules = strategies()[2].mesh_rules;
  const Outer model = filter_shard(make_outer(), mesh_rules);
  expect_error_with(ErrorKind::shape_mismatch, {"[Linear] layers.1.up.kernel: "}, [&] {
    model.layers[1](ones({8, 3}));
  });
  expect_error_with(ErrorKind::shape_mismatch, {"[matmul] act: "}, [&] {
    const ModuleScope outer("block");
    const ModuleScope scope("act");
    matmul(ones({2, 3}), ones({2, 3}));
  });
  expect_error_with(ErrorKind::shape_mismatch, {"[matmul] given: "}, [] {
    const ModuleScope scope("given");  // also a word of the message
    matmul(ones({2, 3}), ones({2, 3}));
  });
  const std::string unplaced = testing::error_of(ErrorKind::shape_mismatch, [] {
    make_outer().layers[0](ones({8, 3}));
  });
  EXPECT_EQ(unplaced.find("layers"), std::string::npos) << "never placed: it has no path";
}

}  // namespace
}  // namespace tessera::nn::trained_test
