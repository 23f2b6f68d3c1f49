// Rule tables as Flax Linen, Flax NNX, MaxText and this library read them: the resulting specs, and the differences.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <map>
#include <string>

#include "nn/placement/explain.h"
#include "nn/placement/filter_shard.h"
#include "sharding/files/json.h"
#include "sharding/operations.h"
#include "tests/nn/support.h"

namespace tessera::nn::rule_semantics_test {
namespace {

namespace json = boost::json;

enum Agreement { same, differs };

// This library's result for a case of rules.json: a spec or an error, and text of its explanation.
struct Ours {
  const char* name;
  const char* spec;  // as in the file; "" for an error
  Agreement linen, nnx;
  const char* words;  // in the explanation or the error
};

const Ours table[] = {
    {"one rule for each", R"(["data","model"])", same, same, ""},
    {"replicated", R"([null,"model"])", same, same, "\"embed\" -> replicated"},
    {"a dim without a name", R"([null,"model"])", same, same, ""},
    {"two rules for one name", R"([null,"model"])", same, differs,
     "not \"mlp\" -> \"data\": an earlier rule applies to the dim"},
    {"the first of two rules is taken by another dim", R"(["data","model"])", same, same,
     "not \"mlp\" -> \"data\": mesh axis \"data\" is taken by another dim"},
    {"the last of two rules is taken by another dim", R"(["data","model"])", same, differs,
     "not \"mlp\" -> \"data\": an earlier rule applies to the dim"},
    {"two names on one mesh axis", R"(["model"])", same, differs,
     "dim 1 = 8: not \"mlp\" -> \"model\": mesh axis \"model\" is taken by another dim"},
    {"two names on one mesh axis, the second dim's rule first", R"([null,"model"])", same, differs,
     "dim 0 = 8: not \"embed\" -> \"model\": mesh axis \"model\" is taken by another dim"},
    {"one name on two dims", R"(["model"])", differs, differs,
     "dim 1 = 8: not \"embed\" -> \"model\": mesh axis \"model\" is taken by another dim"},
    {"one name on two dims, replicated", "[]", differs, same, "dim 1 = 8: \"embed\" -> replicated"},
    {"a name in no rule", "", differs, same, "dim 0 is named \"embed\", which is in no rule"},
    {"a mesh axis's name in no rule", "", differs, differs, "dim 0 is named \"data\", which is in no rule"},
    {"a dim that does not divide", "", same, same, "dim 0 \"mlp\" = 6 is not divisible by mesh axis \"data\" = 4"},
    {"a dim that does not divide, and a second rule", R"(["model"])", differs, same,
     "not \"mlp\" -> \"data\": 6 is not divisible by 4"},
    {"a tuple of mesh axes", R"([["data","model"]])", same, same, ""},
    {"a tuple whose second axis is taken", R"([null,"model"])", same, differs,
     "not \"vocab\" -> \"data\", \"model\": mesh axis \"model\" is taken by another dim"},
    {"a tuple that does not divide, its first axis does", "", same, same,
     "dim 0 \"vocab\" = 4 is not divisible by mesh axes \"data\" = 4 x \"model\" = 2"},
    {"an empty tuple", "[]", same, same, "\"norm\" -> replicated"},
    {"a mesh axis that the mesh lacks", R"([null,"model"])", differs, differs,
     "has no axis \"fsdp\": it counts as size 1"},
    {"a tuple, one axis of which the mesh lacks", R"(["data"])", differs, differs, "has no axis \"fsdp\""},
    {"fewer names than dims", "", differs, differs,
     "(embed) names for an array of shape (8, 8). Give one name to each"},
    {"more names than dims", "", same, same, "(embed, mlp) names for an array of shape (8)"},
};

std::string text_of(const json::value& value) { return json::value_to<std::string>(value); }

std::vector<std::string> axes_of(const json::value& entry) {
  if (entry.is_null()) return {};
  if (entry.is_string()) return {text_of(entry)};
  return json::value_to<std::vector<std::string>>(entry);
}

Rules rules_of(const json::value& list) {
  Rules rules;
  for (const json::value& rule : list.as_array()) rules.push_back(Rule(text_of(rule.at(0)), axes_of(rule.at(1))));
  return rules;
}

Param param_of(const json::value& c) {
  std::vector<AxisName> names;
  for (const json::value& name : c.at("axes").as_array())
    names.push_back(name.is_null() ? AxisName(none) : AxisName(text_of(name)));
  return {ones(json::value_to<std::vector<int64_t>>(c.at("shape"))), Axes(std::move(names))};
}

PartitionSpec spec_of(const json::value& entries) {
  std::vector<SpecEntry> spec;
  for (const json::value& entry : entries.as_array()) spec.push_back(SpecEntry(axes_of(entry)));
  return PartitionSpec(std::move(spec));
}

// Whether another library's outcome equals ours: the same spec, or an error where ours is an error.
Agreement agreement(const ExplainedArray& ours, const json::value& theirs) {
  const json::value* spec = theirs.as_object().if_contains("spec");
  if (!ours.error.empty() || !spec) return !ours.error.empty() && !spec ? same : differs;
  return ours.spec == spec_of(*spec) ? same : differs;
}

TEST(RuleSemantics, each_case_is_as_documented) {
  const json::value file = parse_json_file(TESSERA_REFERENCE_DIR "/rules.json");
  std::map<std::string, Ours> expected;
  for (const Ours& ours : table) expected.emplace(ours.name, ours);
  ASSERT_EQ(file.at("cases").as_array().size(), std::size(table));
  const Mesh mesh = make_mesh({{"data", 4}, {"model", 2}});
  for (const json::value& c : file.at("cases").as_array()) {
    SCOPED_TRACE(text_of(c.at("name")));
    ASSERT_TRUE(expected.contains(text_of(c.at("name"))));
    const Ours& ours = expected.at(text_of(c.at("name")));
    const Param param = param_of(c);
    const Explanation explanation =
        explain(named("w", param), MeshRules(mesh, rules_of(c.at("rules")), {.missing_axes = MissingAxes::ok}));
    const ExplainedArray& w = explanation.at("w");
    EXPECT_EQ(w.error.empty(), *ours.spec != 0) << w.error;
    if (w.error.empty() && *ours.spec) {
      EXPECT_EQ(w.spec, spec_of(json::parse(ours.spec))) << w.spec.to_string();
    }
    EXPECT_EQ(agreement(w, c.at("linen")), ours.linen) << json::serialize(c.at("linen"));
    EXPECT_EQ(agreement(w, c.at("nnx")), ours.nnx) << json::serialize(c.at("nnx"));
    EXPECT_NE(explanation.to_text().find(ours.words), std::string::npos) << explanation;
  }
}

// filter_shard applies the spec that explain reports, or throws the error that it reports.
TEST(RuleSemantics, what_is_explained_is_what_happens) {
  const json::value file = parse_json_file(TESSERA_REFERENCE_DIR "/rules.json");
  const Mesh mesh = make_mesh({{"data", 4}, {"model", 2}});
  for (const json::value& c : file.at("cases").as_array()) {
    SCOPED_TRACE(text_of(c.at("name")));
    struct One {
      Param w;
    } one{param_of(c)};
    const MeshRules mesh_rules(mesh, rules_of(c.at("rules")), {.missing_axes = MissingAxes::ok});
    const ExplainedArray w = explain(one, mesh_rules).at("w");
    if (w.error.empty()) {
      EXPECT_EQ(filter_shard(one, mesh_rules).w.value.sharding().spec(), w.spec);
    } else {
      std::string message;
      try {
        (void)filter_shard(one, mesh_rules);
      } catch (const Error& error) {
        message = error.what();
      }
      EXPECT_EQ(message, w.error);
    }
  }
}

// Tables like MaxText's (configs/base.yml): rules for more mesh axes than a mesh has, several lines for one name, names
// and rules for activations only, and a table that overrides all lines of a name.
TEST(RuleSemantics, tables_in_the_manner_of_MaxText) {
  const Rules base{{"activation_batch", {"data", "fsdp", "expert"}},
                   {"embed", {"fsdp", "fsdp_transpose", "context"}},
                   {"embed", {"fsdp", "context"}},
                   {"mlp", {"fsdp_transpose", "tensor"}},
                   {"mlp", "tensor"},
                   {"vocab", {"tensor", "fsdp_transpose"}},
                   {"norm", "tensor"},
                   {"q_lora", {"fsdp", "context"}}};
  const Mesh fsdp_tensor = make_mesh({{"data", 1}, {"fsdp", 4}, {"tensor", 2}});
  const MeshRules mesh_rules(fsdp_tensor, base, {.missing_axes = MissingAxes::ok});
  const struct {
    Axes axes;
    Shape shape;
    PartitionSpec spec;
  } cases[] = {{{"embed", "mlp"}, {8, 8}, P{"fsdp", "tensor"}},
               {{"vocab", "embed"}, {8, 8}, P{"tensor", "fsdp"}},
               {{"embed", "q_lora"}, {8, 8}, P{"fsdp"}},  // both claim fsdp: the first rule in the table gets it
               {{"norm"}, {8}, P{"tensor"}}};
  for (const auto& c : cases)
    EXPECT_EQ(NamedSharding(fsdp_tensor, mesh_rules.resolve(c.axes, c.shape).spec).spec(), c.spec)
        << c.axes.to_string();
  const auto lora = mesh_rules.resolve({"embed", "q_lora"}, {8, 8});
  EXPECT_EQ(lora.decisions.back().reason, "mesh axis \"fsdp\" is taken by another dim");
  const MeshRules overridden(
      fsdp_tensor, base, {.activations = {{"embed", replicated}, {"mlp", "tensor"}}, .missing_axes = MissingAxes::ok});
  EXPECT_EQ(overridden.activations().resolve({"activation_batch", "embed"}, {8, 8}).spec, (P{{"data", "fsdp"}}));
  EXPECT_EQ(overridden.resolve({"embed"}, {8}).spec, P{"fsdp"});
}

// Keras's MeshRulesMap and the functions written by hand in the documents: by path, the first matching pattern wins.
TEST(RuleSemantics, tables_by_path) {
  const Rules rules{{ParamPattern{"**.dense*.kernel"}, P{none, "model"}},
                    {ParamPattern{.path = "**.kernel", .min_size = 32}, P{"model"}},
                    {ParamPattern{}, replicated}};
  const MeshRules mesh_rules(make_mesh({{"data", 4}, {"model", 2}}), rules);
  const auto spec = [&](const char* path, Shape shape) {
    return mesh_rules.resolve(Axes(std::vector<AxisName>(shape.size(), none)), shape, "filter_shard", path).spec;
  };
  EXPECT_EQ(spec("layers.0.dense_1.kernel", {8, 8}), (P{none, "model"}));
  EXPECT_EQ(spec("layers.0.conv.kernel", {8, 8}), P{"model"});
  EXPECT_EQ(spec("layers.0.conv.kernel", {4, 4}), P{});
  EXPECT_EQ(spec("layers.0.dense_1.bias", {8}), P{});
}

}  // namespace
}  // namespace tessera::nn::rule_semantics_test
