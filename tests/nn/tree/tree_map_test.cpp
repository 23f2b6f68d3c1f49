// Trees: map, zip, fold, editing, comparison and summaries.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "nn/layers/activation.h"
#include "nn/layers/module_scope.h"
#include "nn/placement/filter_shard.h"
#include "nn/tree/tree_at.h"
#include "nn/tree/tree_equal.h"
#include "nn/tree/tree_summary.h"
#include "sharding/operations.h"
#include "tests/nn/support.h"

namespace tessera::nn::tree_map_test {
namespace {

using testing::expect_error;
using testing::expect_near;
using testing::paths_of;
using Paths = std::vector<std::string>;

struct Dense {
  Param kernel{array<float>({1, 2}), {"embed"}};
  std::optional<Param> bias;
};
struct Dropout {
  double rate = 0.5;
  bool inference = false;
};
struct LowRank {
  Dense base;
  Array a = array<float>({1});
};
struct Block {
  std::variant<Dense, LowRank> q, k;
  Dropout dropout;
};
struct Model {
  std::vector<Block> layers{2};
  Dense head{.kernel = {array<float>({3, 4}), {"embed"}}, .bias = Param{array<float>({5}), {"vocab"}}};
  Buffer mean{array<float>({7}), {"embed"}};
  std::pair<Array, int> both{array<float>({6}), 1};
  std::map<std::string, Dense> named{{"a", {}}};
};

// ---- map, zip, fold

TEST(TreeMap, SeveralTreesAreZipped) {
  const Model a, b;
  const Model sum = tree_map([](const Array& x, const Array& y) { return x + 10 * y; }, a, b);
  expect_near(sum.head.kernel, array<float>({33, 44}), 0, "sum");
  EXPECT_EQ(sum.head.kernel.axes.to_string(), "(embed)");
  Paths seen;
  const Model three = tree_map_with_path(
      [&](const std::string& path, const Array& x, const Array& y, const Array& z) {
        seen.push_back(path);
        return x + y + z;
      },
      a, b, sum);
  expect_near(three.head.kernel, array<float>({39, 52}), 0, "three");
  EXPECT_EQ(seen, (Paths{"layers.0.q.kernel", "layers.0.k.kernel", "layers.1.q.kernel", "layers.1.k.kernel",
                         "head.kernel", "head.bias", "mean", "both.0", "named.a.kernel"}));
}

TEST(TreeMap, OneTreeWithOrWithoutPaths) {
  const Model doubled = tree_map([](const Array& x) { return x * 2; }, Model());
  expect_near(doubled.head.kernel, array<float>({6, 8}), 0, "doubled");
  const Model also = tree_map([](const auto&, const auto& x) { return x * 2; }, Model());
  expect_near(also.head.kernel, array<float>({6, 8}), 0, "with path");
}

TEST(TreeMap, OtherStructures) {
  const auto add = [](const Array& x, const Array& y) { return x + y; };
  const std::string cure =
      " in its place, expected trees of one structure. Compare what they were made from: lengths of vectors, "
      "optionals, alternatives of variants, keys of maps.";
  Model other;
  other.layers[1].q = LowRank();
  expect_error(ErrorKind::invalid_argument,
               "[tree_map] layers.1.q.kernel: the other tree has layers.1.q.base.kernel" + cure,
               [&] { tree_map(add, Model(), other); });
  other = Model();
  other.named["b"] = Dense();
  expect_error(ErrorKind::invalid_argument, "[tree_map] named.b.kernel: the other tree has nothing more" + cure,
               [&] { tree_map(add, Model(), other); });
  expect_error(ErrorKind::missing_array,
               "[tree_map_with_path] head.bias is absent from another of the trees. Filter all of them in the same way "
               "(see nn::filter).",
               [&] {
                 tree_map_with_path([](const std::string&, const Array& x, const Array& y) { return x + y; }, Model(),
                                    filter(Model(), !by_path("head.bias")));
               });
}

TEST(TreeReduce, FoldsInOrder) {
  EXPECT_EQ(tree_leaves(Model()).size(), 9u);
  EXPECT_EQ(tree_leaves(filter(Model(), by_path("head.**"))).size(), 2u);
  const int64_t elements =
      tree_reduce([](int64_t n, const Array& x) { return 10 * n + x.size(); }, Model().head, int64_t{0});
  EXPECT_EQ(elements, 21);
}

// ---- tree_at

TEST(TreeAt, ByMemberFunctionAndPath) {
  const Model model;
  const Dense other{.kernel = {array<float>({8, 9}), {"other"}}, .bias = {}};
  EXPECT_EQ(tree_at(&Model::head, model, other).head.kernel.axes.to_string(), "(other)");
  EXPECT_EQ(tree_at("head", model, other).head.kernel.axes.to_string(), "(other)");
  const Array value = array<float>({0, 1});
  for (const Model& m :
       {tree_at(
            [](auto& m) -> auto& { return m.head.kernel; }, model, value),
        tree_at("head.kernel", model, value), tree_at("head.kernel", model, [&](const Array&) { return value; })}) {
    EXPECT_TRUE(m.head.kernel.value.is_same(value));
    EXPECT_EQ(m.head.kernel.axes.to_string(), "(embed)") << "the names stay";
    EXPECT_FALSE(m.mean.value.is_absent());
  }
  EXPECT_FALSE(model.head.kernel.value.is_same(value));
  EXPECT_EQ(tree_at("layers.1.dropout.rate", model, 0.1).layers[1].dropout.rate, 0.1);
  EXPECT_TRUE(tree_at("head.bias", model, value).head.bias->value.is_same(value));
}

TEST(TreeAt, PatternsAndAlternatives) {
  const Model twice = tree_at("layers.*.q.kernel", Model(), [](const Array& w) { return w * 2; });
  for (const Block& block : twice.layers) {
    expect_near(std::get<Dense>(block.q).kernel, array<float>({2, 4}), 0, "q");
    expect_near(std::get<Dense>(block.k).kernel, array<float>({1, 2}), 0, "k");
  }
  const Model adapted = tree_at("layers.*.q", Model(), [](const Dense& base) { return LowRank{.base = base}; });
  EXPECT_EQ(paths_of(leaves(adapted.layers)),
            (Paths{"0.q.base.kernel", "0.q.a", "0.k.kernel", "1.q.base.kernel", "1.q.a", "1.k.kernel"}));
}

TEST(TreeAt, WhatDoesNotFit) {
  const Model model;
  expect_error(ErrorKind::invalid_argument,
               "[tree_at] head.kernal: the tree has no such path. Near it are head.kernel, head.bias, head.",
               [&] { tree_at("head.kernal", model, array<float>({0, 1})); });
  expect_error(
      ErrorKind::invalid_argument,
      "[tree_at] head: it is a Dense, which the replacement (a Array) does not fit. Give one of the same type, "
      "or a function that takes and returns it.",
      [&] { tree_at("head", model, array<float>({0, 1})); });
  expect_error(
      ErrorKind::invalid_argument,
      "[tree_at] layers.*.k.kernel: one array for 2 places, layers.0.k.kernel and layers.1.k.kernel among them, "
      "expected one for each. Give a function, which makes each its own.",
      [&] { tree_at("layers.*.k.kernel", model, array<float>({0, 1})); });
  expect_error(ErrorKind::invalid_argument,
               "[tree_at] layers.*.q: one array for 2 places, layers.0.q and layers.1.q among them, expected one for "
               "each. Give a function, which makes each its own.",
               [&] { tree_at("layers.*.q", model, Dense()); });
}

struct Either {
  std::variant<Array, Param> v = ones({2});
};

TEST(TreeAt, AnArrayInAVariant) {
  const auto made = tree_at("v", Either(), zeros({3}));
  EXPECT_EQ(std::get<Array>(made.v).shape(), (Shape{3}));
}

TEST(TreeAt, NumbersThatAFieldCannotHold) {
  const Model model;
  EXPECT_EQ(tree_at("both.1", model, 7.0).both.second, 7);
  EXPECT_EQ(tree_at("layers.0.dropout.rate", model, 1).layers[0].dropout.rate, 1);
  for (const double number : {2.9, 1e300, -3e9, std::numeric_limits<double>::quiet_NaN()})
    expect_error(
        ErrorKind::invalid_argument,
        fmt::format("[tree_at] {} given for a number of type int, which cannot hold it. Give one that it can.", number),
        [&] { tree_at("both.1", model, number); });
  EXPECT_THROW(tree_at("layers.0.dropout.inference", model, 0.5), Error);
}

// ---- inference_mode

TEST(InferenceMode, SetsEveryFieldOfThatName) {
  const Model model, eval = inference_mode(model), train = inference_mode(eval, false);
  for (size_t i : {0, 1}) {
    EXPECT_FALSE(model.layers[i].dropout.inference);
    EXPECT_TRUE(eval.layers[i].dropout.inference);
    EXPECT_FALSE(train.layers[i].dropout.inference);
  }
  EXPECT_EQ(tree_difference(model, eval), "layers.0.dropout.inference: false and true");
}

// ---- tree_equal

TEST(TreeEqual, NamesTheFirstDifference) {
  const Model model;
  EXPECT_TRUE(tree_equal(model, Model()));
  const auto changed = [&](auto change) {
    Model other;
    change(other);
    EXPECT_FALSE(tree_equal(model, other));
    EXPECT_EQ(tree_difference(model, other).empty(), tree_difference(other, model).empty());
    return tree_difference(model, other);
  };
  EXPECT_EQ(changed([](Model& m) { m.layers.pop_back(); }), "layers: a container of 2 and a container of 1");
  EXPECT_EQ(changed([](Model& m) { m.layers[1].k = LowRank(); }), "layers.1.k: alternative 0 and alternative 1");
  EXPECT_EQ(changed([](Model& m) { m.head.bias.reset(); }), "head.bias: optional and nothing");
  EXPECT_EQ(changed([](Model& m) { m.layers[0].dropout.rate = 0.1; }), "layers.0.dropout.rate: 0.5 and 0.1");
  EXPECT_EQ(changed([](Model& m) { m.both.second = 2; }), "both.1: 1 and 2");
  EXPECT_EQ(changed([](Model& m) { m.named["b"] = {}; }), "named: a container of 1 and a container of 2");
  EXPECT_EQ(changed([](Model& m) { m.named = {{"b", {}}}; }), "named.a: the other tree has named.b in its place");
  EXPECT_EQ(changed([](Model& m) { m.head.kernel.axes = {"vocab"}; }), "head.kernel: param (embed) and param (vocab)");
  EXPECT_EQ(changed([](Model& m) { m.head.kernel.value = array<float>({3}); }),
            "head.kernel: float32[2] and float32[1]");
  EXPECT_EQ(changed([](Model& m) { m.mean.value = zeros({1}, bfloat16); }), "mean: float32[1] and bfloat16[1]");
  EXPECT_EQ(changed([](Model& m) { m.mean.value = Array(); }), "mean: float32[1] and nothing");
  EXPECT_EQ(changed([](Model& m) {
              m.head.kernel.value = array<float>({3, 4.5});
            }),
            "head.kernel: two float32[2] with different values");
}

// Infinities and NaN compare as in jax.numpy.allclose.
TEST(TreeEqual, InfinitiesWithTolerance) {
  const double inf = std::numeric_limits<double>::infinity();
  const auto close = [](double x, double y) { return tree_equal(full({2}, x), full({2}, y), {.rtol = 1e-5}); };
  EXPECT_TRUE(close(inf, inf));
  EXPECT_TRUE(close(1, 1 + 1e-6));
  EXPECT_FALSE(close(0, inf));
  EXPECT_FALSE(close(inf, 0));
  EXPECT_FALSE(close(-inf, inf));
  EXPECT_FALSE(close(NAN, NAN));
}

TEST(TreeEqual, ShardingsAreNotADifference) {
  struct Matrix {
    Param w{reshape(array<float>({1, 2, 3, 4, 5, 6, 7, 8}), {4, 2}), {"embed", "hidden"}};
  };
  const Matrix matrix;
  for (const auto& [name, mesh_rules] : testing::strategies()) {
    const Matrix placed = filter_shard(matrix, mesh_rules);
    for (const auto& [other_name, other] : testing::strategies()) {
      if (other.mesh().size() != mesh_rules.mesh().size()) continue;
      EXPECT_EQ(tree_difference(placed, filter_shard(matrix, other)), "") << name << ' ' << other_name;
    }
    EXPECT_EQ(tree_difference(placed, matrix), "") << name;
    EXPECT_FALSE(tree_equal(placed, tree_map([](const Array& x) { return x + 0.5; }, placed))) << name;
    EXPECT_TRUE(tree_equal(placed, tree_map([](const Array& x) { return x + 0.5; }, placed), {.atol = 0.5})) << name;
    EXPECT_FALSE(tree_equal(placed, tree_map([](const Array& x) { return x + 0.5; }, placed), {.atol = 0.4})) << name;
  }
}

// ---- tree_summary

TEST(TreeSummary, ModulesToADepth) {
  EXPECT_EQ(tree_summary(Model(), {.depth = 2}),
            "path      module  arrays  elements  bytes\n"
            "layers.0  Block        2         4     16\n"
            "layers.1  Block        2         4     16\n"
            "head      Dense        2         3     12\n"
            "named.a   Dense        1         2      8\n"
            "total     Model        9        15     60\n");
  EXPECT_EQ(tree_summary(Model(), {.depth = 1}),
            "path   module  arrays  elements  bytes\n"
            "head   Dense        2         3     12\n"
            "total  Model        9        15     60\n");
}

}  // namespace
}  // namespace tessera::nn::tree_map_test
