// Placement tables of the examples' models: equal before allocation and after placement, and equal to stored files.
//
// tests/reference/golden_*.json stores each table. If one changes, the test prints the lines that differ.
// TESSERA_WRITE_GOLDEN=1 writes the files again.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "examples/transformer.h"
#include "nn/layers/mlp.h"
#include "nn/placement/filter_shard.h"
#include "nn/placement/table.h"
#include "optim/optimizer.h"
#include "tests/sharding/allocations.h"

namespace tessera::examples::golden_test {
namespace {

using nn::PlacementTable;

std::string golden_path(const std::string& name) { return TESSERA_REFERENCE_DIR "/golden_" + name + ".json"; }

// One table row per line of JSON, so that a changed row is a changed line.
std::string with_lines(std::string json) {
  for (size_t at = 0; (at = json.find("},{\"path\"", at)) != std::string::npos; at += 3) json.insert(at + 2, "\n");
  return json + '\n';
}

void expect_golden(const std::string& name, const PlacementTable& table) {
  if (std::getenv("TESSERA_WRITE_GOLDEN")) std::ofstream(golden_path(name)) << with_lines(table.to_json());
  std::ifstream file(golden_path(name));
  ASSERT_TRUE(file) << golden_path(name);
  std::ostringstream text;
  text << file.rdbuf();
  const PlacementTable golden = nn::parse_placement_table(text.str());
  EXPECT_TRUE(golden == table) << name << " differs from " << golden_path(name);
  EXPECT_EQ(golden.to_text(), table.to_text());
}

template <class Model>
auto make_optimizer(const Model& model) {
  return optim::Optimizer(model, optim::adamw({.learning_rate = 1e-3}));
}

// Compares the tables of a model and its optimizer: previewed from the rules, on an abstract mesh, and on devices.
template <class Model>
void expect_one_table(const std::string& name, const Model& recipe, const MeshRules& mesh_rules) {
  SCOPED_TRACE(name);
  const auto placed_on = [&](const MeshRules& l) {
    const Model model = nn::filter_shard(recipe, l);
    const auto optimizer = make_optimizer(model);
    return nn::placement_table(nn::named("model", model, "optimizer", optimizer));
  };
  const auto before = [&] {
    const tessera::testing::Allocations memory;
    const auto optimizer = make_optimizer(recipe);
    const auto table = nn::placement_table(nn::named("model", recipe, "optimizer", optimizer), mesh_rules);
    EXPECT_EQ(memory.largest(), 0) << "nothing is allocated";
    return table;
  }();
  const MeshRules abstract(make_mesh(mesh_rules.mesh().axes(), {.abstract = true}), mesh_rules.rules());
  EXPECT_TRUE(before == placed_on(abstract));
  EXPECT_TRUE(before == placed_on(mesh_rules));
  EXPECT_EQ(before.to_text(), placed_on(abstract).to_text());
  EXPECT_EQ(before.to_text(), placed_on(mesh_rules).to_text());
  expect_golden(name, before);
}

Mesh data_model() { return make_mesh({{"data", 4}, {"model", 2}}); }

TEST(Golden, Quickstart) {
  expect_one_table("quickstart", nn::Mlp::init(Key(0), {"embed", 512}, {"hidden", 2048}),
                   {data_model(), {{"batch", "data"}, {"hidden", "model"}, {"embed", replicated}}});
}

TEST(Golden, SpmdStrategies) {
  const auto model = nn::Mlp::init(Key(0), {"embed", 512}, {"hidden", 2048});
  expect_one_table(
      "spmd_tensor_parallel", model,
      {make_mesh({{"model", 8}}), {{ParamPattern{"**.kernel"}, P{none, "model"}}, {ParamPattern{}, replicated}}});
  expect_one_table(
      "spmd_fully_sharded", model,
      {make_mesh({{"fsdp", 8}}), {{ParamPattern{.min_size = 1025}, P{"fsdp"}}, {ParamPattern{}, replicated}}});
  expect_one_table("fsdp", model, nn::fsdp(make_mesh({{"data", 8}}), "data"));
}

struct DotReluDot {
  nn::Linear dot1, dot2;

  static DotReluDot init(int64_t depth) {
    const Axis embed{"embed", depth}, hidden{"hidden", depth};
    return {.dot1 = nn::Linear::init(Key(0), embed, hidden, {.bias = false}),
            .dot2 = nn::Linear::init(Key(1), hidden, embed, {.bias = false})};
  }
};

TEST(Golden, ScalingUp) {
  const auto model = DotReluDot::init(128);
  expect_one_table("scaling_up_fsdp", model, {data_model(), {{"embed", "data"}, {"hidden", replicated}}});
  expect_one_table("scaling_up_fsdp_tp", model, {data_model(), {{"embed", "data"}, {"hidden", "model"}}});
  DotReluDot annotated = model;
  annotated.dot1.kernel.axes = {none, mesh_axis("model")}, annotated.dot2.kernel.axes = {mesh_axis("model"), none};
  expect_one_table("dot_relu_dot", annotated, {data_model(), {}});
}

TEST(Golden, TrainTransformer) {
  const Rules tp{{"heads", "model"}, {"kv_heads", "model"}, {"mlp", "model"}, {"vocab", "model"}};
  Rules both = tp;
  both.push_back({"embed", "data"});
  expect_one_table("gpt_fsdp", Gpt::init(Key(0), {}), {make_mesh({{"data", 8}}), with_all_names({{"embed", "data"}})});
  expect_one_table("gpt_2d", Gpt::init(Key(0), {}), {data_model(), with_all_names(tp)});
  expect_one_table("llama_fsdp_tp", nn::CausalLM::init(Key(0), {.num_key_value_heads = 2, .tie_word_embeddings = true}),
                   {data_model(), with_all_names(both)});
}

// A decoder of 70 billion parameters on 512 devices, with its optimizer. tests/benchmarks/placement_70b.cpp times it.
TEST(Golden, SeventyBillionParametersInOneScreen) {
  const auto llama = nn::CausalLM::init(Key(0), llama_70b());
  const MeshRules mesh_rules(
      make_mesh({{"batch", 64}, {"model", 8}}, {.abstract = true}),
      with_all_names(
          {{"heads", "model"}, {"kv_heads", "model"}, {"mlp", "model"}, {"vocab", "model"}, {"embed", "batch"}}));
  const tessera::testing::Allocations memory;
  const auto optimizer = make_optimizer(llama);
  const auto table = nn::placement_table(nn::named("model", llama, "optimizer", optimizer), mesh_rules);
  EXPECT_EQ(table.rows().size(), 3u * (80 * 9 + 2));
  EXPECT_EQ(table.element_count("model"), 69'503'033'344);
  const std::string text = table.to_text({.width = 100, .fold = true});
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 45);
  EXPECT_NE(text.find("model.layers.{0..79}"), std::string::npos) << text;
  EXPECT_EQ(memory.largest(), 0);
}

}  // namespace
}  // namespace tessera::examples::golden_test
