// Arrays of a module copied to a map and back, with strict checks.
#include "nn/tree/state.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "nn/placement/filter_shard.h"
#include "nn/placement/table.h"
#include "nn/tree/tree_equal.h"
#include "sharding/operations.h"
#include "sharding/redistribution/device_put.h"
#include "tests/nn/support.h"

namespace tessera::nn::state_test {
namespace {

using testing::expect_error;

struct Dense {
  Param kernel{ones({4, 8}), {"embed", "hidden"}};
  std::optional<Param> bias = Param{ones({8}), {"hidden"}};
};
struct Model {
  std::vector<Dense> layers{2};
  Buffer mean{ones({4}), {"embed"}};
  int64_t steps = 3;
};

TEST(State, HoldsTheArraysUnderTheirPaths) {
  const Model model;
  const State all = state(model);
  EXPECT_EQ(all.size(), 5u);
  EXPECT_TRUE(all.at("layers.1.kernel").is_same(model.layers[1].kernel.value));
  EXPECT_EQ(state(model, is_buffer).size(), 1u);
  EXPECT_EQ(placement_table(all).bytes("layers"), 2 * (32 + 8) * 4);
}

TEST(State, UpdateAndMergeAreItsInverse) {
  for (const auto& [name, mesh_rules] : testing::strategies()) {
    const Model placed = filter_shard(Model(), mesh_rules);
    const Model other = tree_map([](const Array& x) { return x * 3; }, Model());
    Model model = placed;
    update(model, state(other));
    EXPECT_EQ(tree_difference(model, other), "") << name;
    const Leaves before = leaves(placed), after = leaves(model);
    for (size_t i = 0; i < before.size(); ++i) {
      EXPECT_EQ(after[i].value->sharding(), before[i].value->sharding()) << name << before[i].path;
      EXPECT_EQ(after[i].value->path(), before[i].path) << name;
      EXPECT_EQ(mesh_rules_of(*after[i].value).has_value(), mesh_rules_of(*before[i].value).has_value()) << name;
    }
    EXPECT_TRUE(mesh_rules_of(model.layers[1].kernel).has_value()) << name;
    update(model.layers[1], state(other.layers[1]));
    EXPECT_EQ(model.layers[1].kernel.value.path(), "layers.1.kernel") << name;
    auto [definition, arrays] = split(placed);
    EXPECT_EQ(definition.tree.steps, 3);
    EXPECT_EQ(tree_difference(merge(definition, arrays), placed), "") << name;
    update(model, state(placed, is_buffer), is_buffer);
    EXPECT_TRUE(model.mean.value.is_same(placed.mean.value)) << name;
  }
}

TEST(State, OneErrorListsAllThatDoesNotFit) {
  Model model;
  const Model before = model;
  State given = state(model);
  given.erase("layers.0.bias");
  given["layers.1.kernal"] = ones({1});
  given["layers.1.kernel"] = ones({8, 4});
  given["mean"] = ones({4}, bfloat16);
  const auto message = [](const std::string& verb) {
    return "[" + verb +
           "] 4 of the arrays do not fit the tree, which is as it was:\n"
           "  layers.0.bias: missing\n"
           "  layers.1.kernel: float32[8,4] given, expected float32[4,8]\n"
           "  mean: bfloat16[4] given, expected float32[4]\n"
           "  layers.1.kernal: not in the tree, near it layers.1.kernel";
  };
  expect_error(ErrorKind::invalid_argument, message("update"), [&] { update(model, given); });
  expect_error(ErrorKind::invalid_argument, message("merge"), [&] { merge(split(model).first, given); });
  const Leaves a = leaves(before), b = leaves(model);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].value->is_same(*b[i].value)) << a[i].path;
}

TEST(State, TwoArraysUnderOnePath) {
  std::map<std::string, std::map<std::string, Array>> tree;
  tree["a.b"]["c"] = ones({2}), tree["a"]["b.c"] = zeros({2});
  const std::string message =
      "[state] a.b.c: two arrays of the tree have this path, expected one. Rename a key of a map, or a field that a "
      "hook names.";
  expect_error(ErrorKind::invalid_argument, message, [&] { state(tree); });
  expect_error(ErrorKind::invalid_argument, message, [&] { update(tree, State{{"a.b.c", ones({2})}}); });
  expect_error(ErrorKind::invalid_argument, message, [&] { split(tree); });
  const std::string folded = placement_table(leaves(tree)).to_text({.fold = true});
  EXPECT_NE(folded.find("a.b.c"), folded.rfind("a.b.c"));
}

TEST(State, OnlyWhatTheFilterTakes) {
  Model model;
  expect_error(ErrorKind::invalid_argument,
               "[update] 1 of the arrays do not fit the tree, which is as it was:\n"
               "  layers.0.bias: not in the tree, near it mean",
               [&] { update(model, {{"mean", ones({4})}, {"layers.0.bias", ones({8})}}, is_buffer); });
}

}  // namespace
}  // namespace tessera::nn::state_test
