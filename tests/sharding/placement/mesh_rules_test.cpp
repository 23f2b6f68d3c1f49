// Resolution of rules: order, fallback, tuples, used and missing axes, and all errors.
#include "sharding/placement/mesh_rules.h"

#include <gtest/gtest.h>

#include "sharding/base/text.h"
#include "tests/sharding/expect_error.h"
#include "tests/sharding/expressions.h"

namespace tessera::layout_test {
namespace {

using testing::expect_error;

const Mesh mesh = make_mesh({{"data", 4}, {"model", 2}});

TEST(MeshRulesTest, ResolvesInTheOrderOfTheRules) {
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
  for (const Case& c : cases)
    EXPECT_EQ(MeshRules(mesh, c.rules, {.missing_axes = MissingAxes::ok}).resolve(c.axes, c.shape).spec, c.spec)
        << c.what;
}

TEST(MeshRulesTest, ExplainsItself) {
  const MeshRules mesh_rules{mesh, {{"hidden", "data"}, {"hidden", "model"}, {"embed", "model"}, {"vocab", "data"}}};
  const auto decisions = mesh_rules.resolve({"hidden", "embed"}, {6, 8}).decisions;
  std::vector<std::string> texts;
  for (const auto& d : decisions)
    texts.push_back(std::to_string(d.dim) + " " + d.rule + (d.matched ? " matched" : ": " + d.reason));
  EXPECT_EQ(texts, (std::vector<std::string>{"0 \"hidden\" -> \"data\": 6 is not divisible by 4",
                                             "0 \"hidden\" -> \"model\" matched",
                                             "1 \"embed\" -> \"model\": mesh axis \"model\" is taken by another dim"}));
}

TEST(MeshRulesTest, ResolvesByPathAndSize) {
  struct Case {
    const char* what;
    Rules rules;
    const char* path;
    Axes axes;
    Shape shape;
    PartitionSpec spec;
  };
  const Rules kernels{{ParamPattern{"**.kernel"}, P{none, "model"}}, {ParamPattern{}, replicated}};
  const Rules large{{ParamPattern{.min_size = 64}, longest_dim("data")}, {ParamPattern{}, replicated}};
  const Rules both{
      {"hidden", "model"}, {ParamPattern{.min_size = 64}, longest_dim("data")}, {ParamPattern{}, replicated}};
  const Case cases[] = {
      {"a path", kernels, "layers.0.up.kernel", {none, none}, {8, 8}, P{none, "model"}},
      {"another path", kernels, "layers.0.up.bias", {none}, {8}, P{}},
      {"a path, with names that no rule knows", kernels, "up.kernel", {"embed", "hidden"}, {8, 8}, P{none, "model"}},
      {"large enough", large, "w", {none, none}, {8, 16}, P{none, "data"}},
      {"of equal dims the first", large, "w", {none, none}, {8, 8}, P{"data"}},
      {"the longest that divides", large, "w", {none, none}, {4, 18}, P{"data"}},
      {"no dim divides", large, "w", {none, none}, {9, 9}, P{}},
      {"too small", large, "w", {none, none}, {7, 8}, P{}},
      {"a scalar", large, "w", {}, {}, P{}},
      {"a dim of a name, the other by size", both, "w", {"embed", "hidden"}, {8, 16}, P{"data", "model"}},
      {"after a whole spec nothing is open",
       {{ParamPattern{}, replicated}, {"hidden", "model"}},
       "w",
       {"embed", "hidden"},
       {8, 8},
       P{}},
      {"a spec fills what names left open",
       {{"hidden", "model"}, {ParamPattern{"w"}, P{"data", "data2"}}},
       "w",
       {"embed", "hidden"},
       {8, 8},
       P{"data", "model"}},
      {"all of a spec or none of it, then the next",
       {{ParamPattern{}, P{"data", "model"}}, {ParamPattern{}, P{none, "model"}}},
       "w",
       {none, none},
       {6, 8},
       P{none, "model"}},
      {"a spec that is too long, then the next",
       {{ParamPattern{}, P{none, "model"}}, {ParamPattern{}, P{"model"}}},
       "w",
       {none},
       {8},
       P{"model"}},
      {"a tuple in a spec", {{ParamPattern{}, P{{"data", "model"}}}}, "w", {none}, {16}, P{{"data", "model"}}},
      {"a tuple over the longest dim",
       {{ParamPattern{}, longest_dim("data", "model")}},
       "w",
       {none, none},
       {8, 4},
       P{{"data", "model"}}},
      {"an axis that the mesh lacks",
       {{ParamPattern{}, P{"pipe", "model"}}},
       "w",
       {none, none},
       {3, 4},
       P{none, "model"}},
      {"past a mesh axis named directly",
       {{ParamPattern{}, longest_dim("data")}},
       "w",
       {mesh_axis("model"), none},
       {16, 4},
       P{"model", "data"}},
      {"of another path nothing is asked", {{ParamPattern{"head.**"}, P{"data"}}}, "w", {none}, {7}, P{}},
  };
  for (const Case& c : cases)
    EXPECT_EQ(
        MeshRules(mesh, c.rules, {.missing_axes = MissingAxes::ok}).resolve(c.axes, c.shape, "MeshRules", c.path).spec,
        c.spec)
        << c.what;
}

TEST(MeshRulesTest, HasTablesForActivationsAndState) {
  const MeshRules mesh_rules{
      mesh,
      {{"batch", "data"}, {"embed", "data"}, {"embed", "model"}, {ParamPattern{"**.kernel"}, P{"model"}}},
      {.activations = {{"embed", replicated}}, .optimizer_state = {{"embed", "model"}}}};
  EXPECT_EQ(mesh_rules.activations().rules().to_string(), "\"embed\" -> replicated, \"batch\" -> \"data\"");
  EXPECT_EQ(mesh_rules.optimizer_state().rules().to_string(),
            "\"embed\" -> \"model\", \"batch\" -> \"data\", **.kernel -> P('model')");
  EXPECT_TRUE(mesh_rules.activations().activations() == mesh_rules.activations());
  EXPECT_EQ(mesh_rules.resolve({"embed"}, {8}).spec, P{"data"});
  EXPECT_EQ(mesh_rules.activations().resolve({"batch", "embed"}, {8, 8}).spec, P{"data"});
  const MeshRules plain{mesh, {{"batch", "data"}}};
  EXPECT_TRUE(plain.activations() == plain && plain.optimizer_state() == plain);
  EXPECT_FALSE(mesh_rules == MeshRules(mesh, mesh_rules.rules()));
}

TEST(MeshRulesTest, RefusesWhatIsSilentElsewhere) {
  const MeshRules mesh_rules{mesh, {{"hidden", "data"}, {"embed", replicated}, {"vocab", {"data", "model"}}}};
  const auto resolve = [&](Axes axes, Shape shape) {
    return [=] { mesh_rules.resolve(axes, shape, "filter_shard", "up.kernel"); };
  };
  expect_error(ErrorKind::unknown_axis,
               "[filter_shard] up.kernel: dim 1 is named \"hiden\", which is in no rule; \"hidden\" is the nearest. "
               "The rules name: \"embed\", \"hidden\", \"vocab\". Add {\"hiden\", replicated} to replicate it.",
               resolve({"embed", "hiden"}, {8, 8}));
  expect_error(ErrorKind::not_divisible,
               "[filter_shard] up.kernel: dim 1 \"hidden\" = 6 is not divisible by mesh axis \"data\" = 4. Change "
               "the dim, Rules{\"hidden\"} or the mesh.",
               resolve({"embed", "hidden"}, {8, 6}));
  expect_error(ErrorKind::not_divisible,
               "dim 0 \"vocab\" = 4 is not divisible by mesh axes \"data\" = 4 x \"model\" = 2",
               resolve({"vocab"}, {4}));
  expect_error(ErrorKind::rank_mismatch, "(embed) names for an array of shape (8, 8). Give one name to each dim.",
               resolve({"embed"}, {8, 8}));
  expect_error(ErrorKind::unknown_axis,
               "dim 0 names the mesh axis \"pipe\", the mesh is (data=4, model=2). Use one of its axes.",
               resolve({mesh_axis("pipe")}, {8}));
  expect_error(ErrorKind::duplicate_axis,
               "the mesh axis \"data\" is named by two dims. An axis can shard only one dim.",
               resolve({mesh_axis("data"), mesh_axis("data")}, {8, 8}));
  expect_error(ErrorKind::not_divisible, "dim 0 \"data\" = 6 is not divisible by mesh axis \"data\" = 4",
               resolve({mesh_axis("data")}, {6}));
  expect_error(ErrorKind::not_divisible, "\"data\" = 4. Change the dim or the mesh.",
               resolve({mesh_axis("data")}, {6}));
  expect_error(ErrorKind::invalid_argument, "[Axes] an empty name given, expected one such as \"embed\", or none.",
               [] { const Axes axes{"embed", ""}; });
  expect_error(ErrorKind::invalid_argument, "[MeshRules] no mesh given", CALL(MeshRules(Mesh(), {})));
  expect_error(ErrorKind::duplicate_axis,
               "[MeshRules] the rule \"vocab\" -> \"data\", \"data\" names a mesh axis twice",
               CALL(MeshRules(mesh, {{"vocab", {"data", "data"}}})));
}

TEST(MeshRulesTest, RefusesAxesThatTheMeshLacks) {
  expect_error(
      ErrorKind::unknown_axis,
      "[MeshRules] the rule \"embed\" -> \"pipe\" names the mesh axis \"pipe\", which the mesh (data=4, model=2) "
      "does not have. Name one of its axes, or let missing ones count as size one: {.missing_axes = "
      "MissingAxes::ok}.",
      CALL(MeshRules(mesh, {{"hidden", "model"}, {"embed", "pipe"}})));
  expect_error(ErrorKind::unknown_axis, "the rule ** -> P('data', 'pipe') names the mesh axis \"pipe\"",
               CALL(MeshRules(mesh, {{ParamPattern{}, P{"data", "pipe"}}})));
  expect_error(ErrorKind::unknown_axis, "the rule \"embed\" -> \"pipe\"",
               CALL(MeshRules(mesh, {{"embed", "data"}}, {.activations = {{"embed", "pipe"}}})));
}

TEST(MeshRulesTest, RefusesRulesByPathThatFitNothing) {
  const auto resolve = [&](Rules rules, Axes axes, Shape shape) {
    return [=] { MeshRules(mesh, rules).resolve(axes, shape, "filter_shard", "up.kernel"); };
  };
  expect_error(
      ErrorKind::not_divisible,
      "[filter_shard] up.kernel: dim 1 = 6 is not divisible by mesh axis \"data\" = 4. Change the dim, the rule "
      "**.kernel -> P(None, 'data') or the mesh.",
      resolve({{ParamPattern{"**.kernel"}, P{none, "data"}}, {"embed", replicated}}, {"embed", none}, {8, 6}));
  expect_error(ErrorKind::not_divisible, "up.kernel: dim 0 = 6 is not divisible by mesh axis \"data\" = 4",
               resolve({{ParamPattern{}, P{"data"}}}, {none}, {6}));
  expect_error(ErrorKind::rank_mismatch,
               "up.kernel: the rule ** -> P(None, 'data') has more entries than the array of shape (8) has dims. Add a "
               "rule for it: {ParamPattern{\"up.kernel\"}, replicated}.",
               resolve({{ParamPattern{}, P{none, "data"}}}, {none}, {8}));
  expect_error(ErrorKind::rank_mismatch, "up.kernel: the rule ** -> P(None, 'data') has more entries than the array",
               resolve({{ParamPattern{}, P{none, "data"}}}, {"embed"}, {8}));
  expect_error(ErrorKind::unknown_axis, "dim 1 is named \"hidden\", which is in no rule. No rule names a dim.",
               resolve({{ParamPattern{}, longest_dim("data")}}, {"embed", "hidden"}, {8, 6}));
  expect_error(ErrorKind::unknown_axis,
               "dim 0 is named \"embed\", which is in no rule. No rule names a dim. The rule ** -> longest dim over "
               "\"data\" does not place it: no remaining dim can be sharded: 3 is not divisible by 4. Add",
               resolve({{ParamPattern{}, longest_dim("data")}}, {"embed", "hidden"}, {3, 6}));
  expect_error(ErrorKind::not_divisible,
               "dim 0 \"embed\" = 6 is not divisible by mesh axis \"data\" = 4. Change the dim, the rule ** -> "
               "P('data') or the mesh.",
               resolve({{ParamPattern{}, P{"data"}}}, {"embed"}, {6}));
  expect_error(ErrorKind::unconstrained, "[MeshRules] the rule ** -> P(UNCONSTRAINED) leaves a dim unconstrained.",
               CALL(MeshRules(mesh, {{ParamPattern{}, P{unconstrained}}})));
  expect_error(ErrorKind::invalid_argument, "the rule  -> P('data') has no name and no pattern of paths.",
               CALL(MeshRules(mesh, {{ParamPattern{""}, P{"data"}}})));
  expect_error(ErrorKind::invalid_argument, "[Rule] a null pointer given, expected a mesh axis or replicated.",
               CALL(MeshRules(mesh, {{"embed", static_cast<const char*>(nullptr)}})));
  const std::string nameless = " has no name and no pattern of paths. Give \"**\" for all parameters.";
  expect_error(ErrorKind::invalid_argument, "[MeshRules] the rule \"\" -> \"data\"" + nameless,
               CALL(MeshRules(mesh, {{"", "data"}, {"embed", "data"}})));
  expect_error(ErrorKind::invalid_argument, "[MeshRules] the rule \"\" -> replicated" + nameless,
               CALL(MeshRules(mesh, {{"", replicated}})));
  expect_error(ErrorKind::invalid_argument, "the rule ** -> P() names paths, which activations do not have.",
               CALL(MeshRules(mesh, {}, {.activations = {{ParamPattern{}, replicated}}})));
}

TEST(PathPattern, MatchesNameByName) {
  const struct {
    const char *pattern, *path;
    bool matches;
  } cases[] = {{"layers.*.mlp.**", "layers.0.mlp.up.kernel", true},
               {"layers.*.mlp.**", "layers.0.attn.q.kernel", false},
               {"**.bias", "bias", true},
               {"**.bias", "layers.0.attn.q.bias", true},
               {"**.bias", "layers.0.bias.scale", false},
               {"layers.*.norm*", "layers.0.norm1", true},
               {"layers.*.norm*", "layers.0.norm1.scale", false},
               {"head", "head.kernel", false},
               {"head.**", "head", true},
               {"**", "", true},
               {"*", "a.b", false}};
  for (const auto& c : cases) EXPECT_EQ(path_matches(c.path, c.pattern), c.matches) << c.pattern << ' ' << c.path;
}

TEST(MeshRulesTest, IsInterned) {
  const Rules rules{{"embed", "data"}, {"hidden", {"model", "data"}}};
  EXPECT_TRUE(MeshRules(mesh, rules) == MeshRules(mesh, rules));
  EXPECT_FALSE(MeshRules(mesh, rules) == MeshRules(mesh, {{"embed", "data"}}));
  const MeshRulesOptions any{.missing_axes = MissingAxes::ok};
  EXPECT_FALSE(MeshRules(mesh, {{"a", "b\", \"c"}}, any) == MeshRules(mesh, {{"a", {"b", "c"}}}, any));
  EXPECT_EQ(rules.to_string(), "\"embed\" -> \"data\", \"hidden\" -> \"model\", \"data\"");
}

}  // namespace
}  // namespace tessera::layout_test
