// Rules resolved: order, fallback, tuples, taken and missing axes, and every refusal.
#include "sharding/layout.h"

#include <gtest/gtest.h>

#include "expect_error.h"

namespace tessera {
namespace {

using testing::expect_error;

const Mesh mesh = make_mesh({{"data", 4}, {"model", 2}});

TEST(LayoutTest, ResolvesInTheOrderOfTheRules) {
  struct Case {
    const char* what;
    Rules rules;
    Axes axes;
    Shape shape;
    PartitionSpec spec;
  };
  const Case cases[] = {
      {"one each", {{"embed", "data"}, {"hidden", "model"}}, {"embed", "hidden"}, {8, 8}, P{"data", "model"}},
      {"replicated", {{"embed", replicated}, {"hidden", "model"}}, {"embed", "hidden"}, {8, 8}, P{none, "model"}},
      {"an unnamed dim", {{"hidden", "model"}}, {none, "hidden"}, {3, 8}, P{none, "model"}},
      {"an earlier rule wins the axis, whatever the dims' order",
       {{"hidden", "model"}, {"embed", "model"}},
       {"embed", "hidden"},
       {8, 8},
       P{none, "model"}},
      {"the fallback, if the axis is taken",
       {{"embed", "model"}, {"hidden", "model"}, {"hidden", "data"}},
       {"embed", "hidden"},
       {8, 8},
       P{"model", "data"}},
      {"the fallback, if the first does not divide",
       {{"hidden", "data"}, {"hidden", "model"}},
       {"hidden"},
       {6},
       P{"model"}},
      {"the fallback may be replication", {{"hidden", "data"}, {"hidden", replicated}}, {"hidden"}, {7}, P{}},
      {"a tuple", {{"vocab", {"data", "model"}}}, {"vocab"}, {16}, P{{"data", "model"}}},
      {"a tuple in the other order", {{"vocab", {"model", "data"}}}, {"vocab"}, {16}, P{{"model", "data"}}},
      {"a tuple that does not divide falls back whole",
       {{"vocab", {"data", "model"}}, {"vocab", "model"}},
       {"vocab"},
       {4},
       P{"model"}},
      {"one axis of a tuple is taken",
       {{"embed", "model"}, {"vocab", {"data", "model"}}},
       {"vocab", "embed"},
       {16, 4},
       P{none, "model"}},
      {"an axis that the mesh lacks",
       {{"embed", "pipe"}, {"hidden", "model"}},
       {"embed", "hidden"},
       {8, 8},
       P{none, "model"}},
      {"a tuple with an axis that the mesh lacks", {{"embed", {"pipe", "data"}}}, {"embed"}, {8}, P{"data"}},
      {"one name twice", {{"embed", "model"}}, {"embed", "embed"}, {8, 8}, P{"model"}},
      {"a mesh axis directly", {{"embed", "model"}}, {mesh_axis("model"), "embed"}, {8, 8}, P{"model"}},
      {"a scalar", {}, {}, {}, P{}},
  };
  for (const Case& c : cases) EXPECT_EQ(Layout(mesh, c.rules).resolve(c.axes, c.shape).spec, c.spec) << c.what;
}

TEST(LayoutTest, ExplainsItself) {
  const Layout layout{mesh, {{"hidden", "data"}, {"hidden", "model"}, {"embed", "model"}, {"vocab", "data"}}};
  const auto decisions = layout.resolve({"hidden", "embed"}, {6, 8}).decisions;
  std::vector<std::string> texts;
  for (const auto& d : decisions)
    texts.push_back(std::to_string(d.dim) + " " + d.rule + (d.matched ? " matched" : ": " + d.reason));
  EXPECT_EQ(texts, (std::vector<std::string>{"0 \"hidden\" -> \"data\": 6 is not divisible by 4",
                                             "0 \"hidden\" -> \"model\" matched",
                                             "1 \"embed\" -> \"model\": mesh axis \"model\" is taken by another dim"}));
}

TEST(LayoutTest, RefusesWhatIsSilentElsewhere) {
  const Layout layout{mesh, {{"hidden", "data"}, {"embed", replicated}, {"vocab", {"data", "model"}}}};
  const auto resolve = [&](Axes axes, Shape shape) {
    return [=] { layout.resolve(axes, shape, "filter_shard", "up.kernel"); };
  };
  expect_error(
      ErrorKind::unknown_axis,
      "[filter_shard] up.kernel: dim 1 is named \"hiden\", which is in no rule. The rules know: \"embed\", \"hidden\", "
      "\"vocab\". Add {\"hiden\", replicated} to keep it whole.",
      resolve({"embed", "hiden"}, {8, 8}));
  expect_error(ErrorKind::uneven,
               "[filter_shard] up.kernel: dim 1 \"hidden\" = 6 is not divisible by mesh axis \"data\" = 4. Change "
               "Rules{\"hidden\"} or the mesh.",
               resolve({"embed", "hidden"}, {8, 6}));
  expect_error(ErrorKind::uneven, "dim 0 \"vocab\" = 4 is not divisible by mesh axes \"data\" = 4 x \"model\" = 2",
               resolve({"vocab"}, {4}));
  expect_error(ErrorKind::rank_mismatch, "(embed) names for an array of shape (8, 8). Give one name to each dim.",
               resolve({"embed"}, {8, 8}));
  expect_error(ErrorKind::unknown_axis,
               "dim 0 names the mesh axis \"pipe\", the mesh is (data=4, model=2). Use one of its axes.",
               resolve({mesh_axis("pipe")}, {8}));
  expect_error(ErrorKind::duplicate_axis, "the mesh axis \"data\" is named by two dims",
               resolve({mesh_axis("data"), mesh_axis("data")}, {8, 8}));
  expect_error(ErrorKind::uneven, "dim 0 \"data\" = 6 is not divisible by mesh axis \"data\" = 4",
               resolve({mesh_axis("data")}, {6}));
  expect_error(ErrorKind::bad_argument, "[Layout] no mesh given", [] { Layout(Mesh(), {}); });
  expect_error(ErrorKind::duplicate_axis, "[Layout] the rule \"vocab\" -> \"data\", \"data\" names a mesh axis twice",
               [] {
                 Layout(mesh, {{"vocab", {"data", "data"}}});
               });
}

TEST(LayoutTest, IsInterned) {
  const Rules rules{{"embed", "data"}, {"hidden", {"model", "data"}}};
  EXPECT_TRUE(Layout(mesh, rules) == Layout(mesh, rules));
  EXPECT_FALSE(Layout(mesh, rules) == Layout(mesh, {{"embed", "data"}}));
  EXPECT_FALSE(Layout(mesh, {{"a", "b\", \"c"}}) == Layout(mesh, {{"a", {"b", "c"}}}));
  EXPECT_EQ(rules.to_string(), "\"embed\" -> \"data\", \"hidden\" -> \"model\", \"data\"");
}

}  // namespace
}  // namespace tessera
