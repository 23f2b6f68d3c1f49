// explain: the effect of each rule on each array, rules without effect, and replicated arrays.
#include "nn/placement/explain.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <sstream>

#include "nn/layers/embedding.h"
#include "nn/layers/mlp.h"
#include "nn/placement/filter_shard.h"
#include "sharding/operations.h"
#include "sharding/redistribution/device_put.h"
#include "tests/nn/support.h"

namespace tessera::nn::explain_test {
namespace {

struct Model {
  Embedding embed;
  std::vector<Mlp> layers;
  Array scale;

  static Model init(int64_t hidden = 16) {
    Model model{.embed = Embedding::init(Key(0), {"vocab", 64}, {"embed", 8}), .layers = {}, .scale = ones({})};
    for (int i = 0; i < 3; ++i) model.layers.push_back(Mlp::init(Key(i), {"embed", 8}, {"hidden", hidden}));
    return model;
  }
};

Mesh mesh() { return make_mesh({{"data", 4}, {"model", 2}}); }

// Rules on a mesh that may lack some of their mesh axes.
MeshRules rules_on(const Mesh& mesh, const Rules& rules) {
  return MeshRules(mesh, rules, {.missing_axes = MissingAxes::ok});
}

TEST(Explain, as_text) {
  const Rules rules{
      {"hidden", "data"}, {"hidden", "model"}, {"embed", "data"}, {"vocab", replicated}, {"seq", "model"}};
  std::ostringstream out;
  out << explain(Model::init(6), rules_on(mesh(), rules));
  EXPECT_EQ(out.str(), R"(14 arrays on the mesh (data=4, model=2)

embed.tokens
  (vocab, embed) float32 (64, 8): P(None, 'data')
    dim 1 = 8: "embed" -> "data"
    dim 0 = 64: "vocab" -> replicated
layers.{0..2}.up.kernel
  (embed, hidden) float32 (8, 6): P('data', 'model')
    dim 1 = 6: not "hidden" -> "data": 6 is not divisible by 4
    dim 1 = 6: "hidden" -> "model"
    dim 0 = 8: "embed" -> "data"
layers.{0..2}.up.bias
  (hidden) float32 (6): P('model')
    dim 0 = 6: not "hidden" -> "data": 6 is not divisible by 4
    dim 0 = 6: "hidden" -> "model"
layers.{0..2}.down.kernel
  (hidden, embed) float32 (6, 8): P('model', 'data')
    dim 0 = 6: not "hidden" -> "data": 6 is not divisible by 4
    dim 0 = 6: "hidden" -> "model"
    dim 1 = 8: "embed" -> "data"
layers.{0..2}.down.bias
  (embed) float32 (8): P('data')
    dim 0 = 8: "embed" -> "data"
scale
  float32 (): P()
    no rule applies to it

Rules that did nothing
  "hidden" -> "data": always skipped, first at layers.0.up.kernel: 6 is not divisible by 4
  "seq" -> "model": no dim of these arrays has the name; one of a batch or an activation may
)");
}

TEST(Explain, finds_what_is_misspelt) {
  const Rules rules{
      {"vocab", "modle"}, {"embd", "data"}, {"embed", "pipe"}, {"hidden", "model"}, {ParamPattern{"head.**"}, P{}}};
  const Explanation explanation = explain(Model::init(), rules_on(mesh(), rules));
  std::vector<std::string> lines;
  for (const IdleRule& idle : explanation.idle_rules()) lines.push_back(idle.rule + ": " + idle.reason);
  EXPECT_EQ(
      lines,
      (std::vector<std::string>{
          "\"vocab\" -> \"modle\": the mesh (data=4, model=2) has no axis \"modle\"; \"model\" is the nearest: it "
          "counts as size 1",
          "\"embd\" -> \"data\": no dim of these arrays has the name; \"embed\" is the nearest",
          "\"embed\" -> \"pipe\": the mesh (data=4, model=2) has no axis \"pipe\": it counts as size 1",
          "head.** -> P(): no array has such a path"}));
}

TEST(Explain, names_large_arrays_that_stayed_whole_and_what_they_could_use) {
  const Rules rules{{"vocab", replicated}, {"embed", replicated}, {"hidden", "model"}};
  const Explanation explanation = explain(Model::init(), rules_on(mesh(), rules));
  const auto large = explanation.large_whole();
  ASSERT_EQ(large.size(), 1u);
  EXPECT_EQ(large[0].path, "embed.tokens");
  EXPECT_EQ(large[0].could_use, (std::vector<std::string>{"data", "model"}));
  EXPECT_NE(
      explanation.to_text().find(
          "Replicated although large\n  embed.tokens: 2,048 bytes on every device; could use \"data\" or \"model\"\n"),
      std::string::npos)
      << explanation.to_text();
  EXPECT_EQ(explain(Model::init(), rules_on(mesh(), rules), {.large_fraction = 0}).large_whole().size(), 5u);
  EXPECT_TRUE(explain(Model::init(), rules_on(make_mesh({{"data", 1}}), rules)).large_whole().empty()) << "one device";
}

TEST(Explain, says_all_errors_at_once) {
  const Explanation explanation =
      explain(Model::init(6), rules_on(mesh(), {{"hidden", "data"}, {"embed", replicated}}));
  EXPECT_TRUE(explanation.has_errors());
  EXPECT_EQ(explanation.at("embed.tokens").error,
            "[filter_shard] embed.tokens: dim 0 is named \"vocab\", which is in no rule. The rules name: \"embed\", "
            "\"hidden\". Add {\"vocab\", replicated} to replicate it.");
  EXPECT_EQ(
      explanation.at("layers.2.up.kernel").error,
      "[filter_shard] layers.2.up.kernel: dim 1 \"hidden\" = 6 is not divisible by mesh axis \"data\" = 4. Change "
      "the dim, Rules{\"hidden\"} or the mesh. With Uneven::pad the dim is padded.");
  EXPECT_EQ(explanation.at("layers.2.down.bias").error, "");
  EXPECT_FALSE(explain(Model::init(), testing::strategies()[4].mesh_rules).has_errors());
}

TEST(Explain, what_was_placed_by_the_layout_that_rides_on_it) {
  const MeshRules mesh_rules(mesh(), {{"vocab", "model"}, {"embed", replicated}, {"hidden", "model"}});
  Model model = filter_shard(Model::init(), mesh_rules);
  EXPECT_EQ(explain(model).to_text(), explain(Model::init(), mesh_rules).to_text());
  EXPECT_EQ(explain(model).at("embed.tokens").spec, P{"model"});
  model.layers[1].up.kernel.value = place_parameter(model.layers[1].up.kernel, mesh_rules, P{"data"}, "moved");
  EXPECT_EQ(explain(model).at("layers.1.up.kernel").moved_to, P{"data"});
  EXPECT_NE(explain(model).to_text().find("Moved\n  layers.1.up.kernel: P('data'), the rules give P(None, 'model')\n"),
            std::string::npos)
      << explain(model);
}

TEST(Explain, a_params_own_rules_stand_before_the_others) {
  Linear layer = Linear::init(Key(0), {"embed", 8}, {"hidden", 16});
  layer.kernel.rules = {{"hidden", "data"}};
  const Explanation explanation = explain(layer, rules_on(mesh(), {{"hidden", "model"}, {"embed", replicated}}));
  EXPECT_EQ(explanation.at("kernel").spec, (P{none, "data"}));
  EXPECT_EQ(explanation.at("bias").spec, P{"model"});
  EXPECT_TRUE(explanation.idle_rules().empty()) << explanation;
}

TEST(Explain, as_json) {
  const Explanation explanation = explain(
      Model::init(6), rules_on(mesh(), {{"hidden", "data"}, {"hidden", "model"}, {"embed", "data"}, {"seq", "model"}}));
  const boost::json::object object = boost::json::parse(explanation.to_json()).as_object();
  const boost::json::array& arrays = object.at("arrays").as_array();
  ASSERT_EQ(arrays.size(), 14u);
  EXPECT_TRUE(arrays[0].at("spec").is_null());
  EXPECT_TRUE(arrays[0].at("error").is_string());
  EXPECT_EQ(arrays[2], boost::json::parse(R"json({
    "path": "layers.0.up.bias", "axes": ["hidden"], "shape": [6], "dtype": "float32", "bytes": 24,
    "spec": "P('model')", "stage": "", "error": null, "moved_to": null, "whole": false, "could_use": [], "decisions": [
      {"dim": 0, "rule": "\"hidden\" -> \"data\"", "matched": false, "reason": "6 is not divisible by 4"},
      {"dim": 0, "rule": "\"hidden\" -> \"model\"", "matched": true, "reason": ""}]})json"));
  EXPECT_EQ(object.at("mesh"), "data=4, model=2");
  EXPECT_EQ(object.at("idle_rules").as_array().size(), 2u);
  EXPECT_TRUE(object.at("large_whole").as_array().empty());
}

TEST(ExplainErrors, what_no_layout_placed) {
  testing::expect_error(
      ErrorKind::invalid_argument,
      "[explain] embed.tokens: no mesh rules placed it. Place the tree with filter_shard(tree, mesh_rules), "
      "or give the mesh rules.",
      [] { explain(filter_shard(Model::init(), NamedSharding(mesh(), P{}))); });
  testing::expect_error(ErrorKind::invalid_argument, "[explain] x: no array has this path. See arrays().",
                        [] { explain(Model::init(), rules_on(mesh(), {})).at("x"); });
  struct Two {
    Param a, b;
  };
  const auto placed = [](Rules rules) {
    return filter_shard(Param{ones({8}), {"embed"}}, MeshRules(mesh(), std::move(rules)));
  };
  testing::expect_error(ErrorKind::invalid_argument,
                        "[explain] a and b were placed by two sets of mesh rules. Explain each part separately.",
                        [&] { explain(Two{placed({{"embed", "data"}}), placed({{"embed", "model"}})}); });
}

}  // namespace
}  // namespace tessera::nn::explain_test
