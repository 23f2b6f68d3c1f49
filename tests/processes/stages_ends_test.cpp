// Parameters outside the vector of layers, placed on a single stage: embedding and head.
#include "nn/layers/linear.h"
#include "nn/placement/explain.h"
#include "nn/placement/table.h"
#include "nn/transformations/pipeline.h"
#include "nn/transformations/value_and_grad.h"
#include "tests/processes/stages.h"
#include "tests/processes/ways.h"
#include "tests/sharding/expect_error.h"

namespace tessera::stages_ends_test {
namespace {

using namespace tessera::testing;

struct Untied {
  nn::Embedding embedding;
  std::vector<Block> layers;
  nn::LayerNorm norm;
  nn::Linear head;

  static Untied init(const Key& key) {
    Model tied = Model::init(key, depth);
    return {tied.embedding, tied.layers, tied.norm,
            nn::cast(nn::Linear::init(fold_in(key, 99), {"embed", 8}, {"vocab", 12}), float64)};
  }
  Array operator()(const Array& ids) const {
    Array x = embedding(ids);
    for (const Block& block : layers) x = block(x);
    return head(norm(x));
  }
};

Rules with_ends(Rules rules) {
  rules.push_back({ParamPattern{"**.embedding.**"}, on_stage("pipe", 0)});
  rules.push_back({ParamPattern{"**.head.**"}, on_stage("pipe", -1)});
  rules.push_back(
      {ParamPattern{"**.norm.*"}, on_stage("pipe", -1)});  // not the layers' norms, which follow the vector's rule
  return rules;
}

Array untied_loss(const Untied& model, const Batch& batch) { return cross_entropy(model(batch.ids), batch.labels); }

TEST(Stages, HaveTheEndsOfTheModel) {
  const auto step = [](const Untied& m, const Batch& b) { return nn::value_and_grad(untied_loss)(m, b); };
  const auto pipelined = [](const Untied& m, const Batch& b) {
    return nn::pipeline(untied_loss, {.num_micro_batches = 4, .schedule = nn::PipelineSchedule::one_f_one_b})(m, b);
  };
  const Untied model = Untied::init(Key(0));
  const Curve expected = curve_of(model, std::nullopt, step);
  for (const char* name : {"pipe4", "pipe2_fsdp4", "pipe4_data2_model2"}) {
    SCOPED_TRACE(name);
    const MeshRules mesh_rules(make_mesh(strategy(name).mesh), with_ends(strategy(name).rules));
    expect_same(curve_of(model, mesh_rules, step), expected);
    expect_same(curve_of(model, mesh_rules, pipelined), expected);
  }
  // The embedding, 96 numbers, is on the first stage; norm and head, 16 + 108, are on the last. A block has 296.
  const MeshRules mesh_rules(make_mesh(strategy("pipe4").mesh), with_ends(pipe));
  const nn::PlacementTable table = nn::placement_table(model, mesh_rules);
  EXPECT_EQ(table.rows().front().stage, "pipe[0]");
  EXPECT_EQ(table.rows().back().stage, "pipe[3]");
  EXPECT_EQ(table.bytes_per_device(), (296 + 16 + 108) * 8);
  const Untied there = nn::filter_shard(model, mesh_rules);
  EXPECT_EQ(nn::placement_table(there).bytes_per_device(), table.bytes_per_device());
  for (const nn::IdleRule& rule : nn::explain(there).idle_rules())
    EXPECT_EQ(rule.rule.find("stage"), std::string::npos) << rule.rule;
  const CommLedger ledger;
  nn::value_and_grad(untied_loss)(there, placed(make_batch(0), mesh_rules));
  EXPECT_EQ(said_of(ledger), "all_reduce pipe: 1, 8\npermute pipe: 3, 9216\npermute pipe back: 3, 9216\n")
      << "no parameter is on several stages";
}

TEST(Stages, RefuseAnEndThatIsNone) {
  Rules far = pipe;
  far.push_back({ParamPattern{"**.embedding.**"}, on_stage("pipe", 4)});
  const Mesh mesh = make_mesh(strategy("pipe4").mesh);
  expect_error(
      ErrorKind::invalid_argument,
      "[filter_shard] embedding.tokens: the rule **.embedding.** -> stage 4 of \"pipe\", expected stages from -4 "
      "to 3.",
      [&] { (void)nn::filter_shard(Untied::init(Key(0)), MeshRules(mesh, far)); });
  Rules astray = pipe;
  astray.push_back({ParamPattern{"**.embedding.**"}, on_stage("data", 1)});
  expect_error(
      ErrorKind::invalid_argument,
      "[filter_shard] embedding.tokens: the rule **.embedding.** -> stage 1 of \"data\", expected a stage of "
      "\"pipe\", along which layers is split. Name that axis: on_stage(\"pipe\", 1).",
      [&] { (void)nn::filter_shard(Untied::init(Key(0)), MeshRules(make_mesh({{"data", 2}, {"pipe", 2}}), astray)); });
  expect_error(ErrorKind::invalid_argument, "selects arrays by size. Name the paths of the stage's parameters.",
               [&] { MeshRules(mesh, {{ParamPattern{.min_size = 8}, on_stage("pipe", 0)}}); });
  // A tied embedding on the first stage only: the last activation is sent back to it.
  Rules first = pipe;
  first.push_back({ParamPattern{"**.embedding.**"}, on_stage("pipe", 0)});
  const MeshRules mesh_rules(mesh, first);
  const Model model = nn::filter_shard(Model::init(Key(0), depth), mesh_rules);
  EXPECT_EQ(nn::explain(model).arrays().size(), nn::explain(Model::init(Key(0), depth), mesh_rules).arrays().size())
      << "some arrays on a stage, some on all";
  const Batch batch = placed(make_batch(0), mesh_rules);
  const nn::PipelineOptions gpipe{.num_micro_batches = 4},
      eager{.num_micro_batches = 4, .schedule = nn::PipelineSchedule::one_f_one_b};
  const double expected = loss_of(Model::init(Key(0), depth), make_batch(0)).item<double>();
  EXPECT_NEAR(nn::pipeline(loss_of, gpipe)(model, batch).first.item<double>(), expected, 1e-10);
  expect_error(ErrorKind::invalid_argument,
               {"would go back from pipe[3] to pipe[0], where a parameter is placed", "use gpipe"},
               [&] { nn::pipeline(loss_of, eager)(model, batch); });
}

}  // namespace
}  // namespace tessera::stages_ends_test
