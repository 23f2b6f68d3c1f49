// Layers on pipeline stages: the training of one device, on virtual devices of one process and across processes.
#include "tests/processes/stages.h"

#include <unistd.h>

#include <filesystem>

#include "nn/checkpoint/checkpoint.h"
#include "nn/layers/batch_norm.h"
#include "nn/placement/explain.h"
#include "nn/placement/table.h"
#include "nn/transformations/pipeline.h"
#include "nn/transformations/remat.h"
#include "nn/transformations/value_and_grad.h"
#include "sharding/accounting/forecast.h"
#include "sharding/placement/mesh.h"
#include "sharding/runtime/consensus.h"
#include "tests/processes/ways.h"
#include "tests/sharding/expect_error.h"

namespace tessera::stages_test {
namespace {

using namespace tessera::testing;

TEST(Stages, TrainAsOneDeviceDoes) {
  const Model model = Model::init(Key(0), depth);
  const auto step = [](const Model& m, const Batch& b) { return nn::value_and_grad(loss_of)(m, b); };
  const Curve expected = curve_of(model, std::nullopt, step);
  for (const Strategy& s : strategies) {
    if (devices_of(s) % process_count()) continue;
    SCOPED_TRACE(s.name);
    expect_same(curve_of(model, MeshRules(make_mesh(s.mesh), s.rules), step), expected);
  }
}

TEST(Stages, TrainInMicroBatchesByEachSchedule) {
  const Model model = Model::init(Key(0), depth);
  const auto step = [](const Model& m, const Batch& b) { return nn::value_and_grad(loss_of)(m, b); };
  const Curve expected = curve_of(model, std::nullopt, step);
  for (const Strategy& s : strategies)
    for (const nn::PipelineSchedule schedule : {nn::PipelineSchedule::gpipe, nn::PipelineSchedule::one_f_one_b}) {
      if (devices_of(s) % process_count()) continue;
      SCOPED_TRACE(std::string(s.name) + " " + std::string(name_of(schedule)));
      const auto pipelined = [&](const Model& m, const Batch& b) {
        return nn::pipeline(loss_of, {.num_micro_batches = 4, .schedule = schedule})(m, b);
      };
      expect_same(curve_of(model, MeshRules(make_mesh(s.mesh), s.rules), pipelined), expected);
    }
}

TEST(Stages, NameTheAxesThatShardTheBatch) {
  const MeshRules mesh_rules(make_mesh(strategy("pipe4").mesh), pipe);
  const Model model = nn::filter_shard(Model::init(Key(0), depth), mesh_rules);
  expect_error(ErrorKind::not_divisible,
               "[pipeline] ids: 16 rows on each of 1 devices are not divisible by 3 micro-batches. Change one of them.",
               [&] { nn::pipeline(loss_of, {.num_micro_batches = 3})(model, placed(make_batch(0), mesh_rules)); });
  expect_error(ErrorKind::not_divisible, "are not divisible by 1099511627776 micro-batches", [&] {
    nn::pipeline(loss_of, {.num_micro_batches = int64_t{1} << 40})(model, placed(make_batch(0), mesh_rules));
  });
  expect_error(ErrorKind::invalid_argument, "[pipeline] 0 micro-batches given, expected 1 or more.",
               [] { nn::pipeline(loss_of, {.num_micro_batches = 0}); });
}

TEST(Stages, NameUnplacedArrays) {
  const MeshRules mesh_rules(make_mesh(strategy("pipe4").mesh), pipe);
  const Model model = nn::filter_shard(Model::init(Key(0), depth), mesh_rules);
  const CommLedger ledger;
  nn::pipeline(loss_of, {.num_micro_batches = 2})(model, make_batch(0));
  ASSERT_EQ(ledger.unplaced().size(), 2u);
  EXPECT_TRUE(ledger.unplaced()[0].path.ends_with(".ids")) << ledger.unplaced()[0].path;
}

std::string words_of(const std::vector<nn::detail::ScheduledPass>& passes) {
  std::string text;
  for (const auto& [is_backward, i, virtual_stage] : passes)
    text += (is_backward ? " B" : " F") + std::to_string(i) + (virtual_stage > 0 ? "'" : "");
  return text;
}

TEST(Stages, TakeTheirPassesInTheOrderOfTheSchedule) {
  const auto passes = [](nn::PipelineSchedule schedule, int64_t stage, int64_t n) {
    return words_of(nn::detail::passes_of({.num_micro_batches = n, .schedule = schedule}, stage, 3));
  };
  EXPECT_EQ(passes(nn::PipelineSchedule::gpipe, 0, 3), " F0 F1 F2 B0 B1 B2");
  EXPECT_EQ(passes(nn::PipelineSchedule::one_f_one_b, 0, 5), " F0 F1 F2 B0 F3 B1 F4 B2 B3 B4");
  EXPECT_EQ(passes(nn::PipelineSchedule::one_f_one_b, 1, 4), " F0 F1 B0 F2 B1 F3 B2 B3");
  EXPECT_EQ(passes(nn::PipelineSchedule::one_f_one_b, 2, 3), " F0 B0 F1 B1 F2 B2");
}

TEST(Stages, AreMeshesOfTheirOwn) {
  const Mesh mesh = make_mesh({{"data", 2}, {"pipe", 4}}), stage = sub_mesh(mesh, "pipe", 3);
  EXPECT_EQ(stage, sub_mesh(mesh, "pipe", 3));
  EXPECT_EQ(whole_mesh(stage), mesh);
  EXPECT_EQ(stage.devices(), (std::vector<int>{mesh.devices()[3], mesh.devices()[7]}));
  EXPECT_EQ(stage.size("pipe"), 1);
  EXPECT_EQ(stage.to_string(), "data=2, pipe[3]");
  expect_error(ErrorKind::invalid_argument, "[sub_mesh] coordinate 4 given, mesh axis \"pipe\" has 0 to 3.",
               [&] { sub_mesh(mesh, "pipe", 4); });
  expect_error(
      ErrorKind::invalid_argument,
      "[sub_mesh] (data=2, pipe[3]) is a sub-mesh itself, expected a full mesh. Take data from (data=2, pipe=4).",
      [&] { sub_mesh(stage, "data", 0); });
  expect_error(ErrorKind::not_divisible,
               "[filter_shard] layers: 3 elements for mesh axis \"pipe\" = 4, expected at least one for each stage. "
               "Change the rule or the mesh.",
               [&] { (void)nn::filter_shard(Model::init(Key(0), 3), MeshRules(mesh, pipe_data)); });
}

TEST(Stages, AreAlongOneAxis) {
  Rules both = pipe_data;
  both[0] = {"layers", {"pipe", "data"}};
  const MeshRules mesh_rules(make_mesh({{"data", 2}, {"pipe", 4}}), both);
  const Model model = Model::init(Key(0), depth);
  const std::string words =
      "layers: its rule names the mesh axes \"pipe\", \"data\", expected one, along which its elements are split. "
      "Give the others to the names of dims.";
  expect_error(ErrorKind::invalid_argument, "[filter_shard] " + words,
               [&] { (void)nn::filter_shard(model, mesh_rules); });
  expect_error(ErrorKind::invalid_argument, "[placement_table] " + words,
               [&] { nn::placement_table(model, mesh_rules); });
  expect_error(ErrorKind::invalid_argument, "[explain] " + words, [&] { nn::explain(model, mesh_rules); });
  const MeshRules one(make_mesh({{"data", 1}, {"pipe", 4}}), both);  // an axis of size one makes no stages
  EXPECT_EQ(nn::placement_table(model, one).rows()[1].stage, "pipe[0]");
}

// Other options of a step: with each, the loss curve equals one device's.
TEST(Stages, TrainWithRematCastsWeightsAndAux) {
  const Model model = Model::init(Key(0), depth);
  const auto rematted = [](const Model& m, const Batch& b) {
    Array x = m.embedding(b.ids.value);
    for (const Block& block : m.layers) x = nn::remat(block)(x);
    return cross_entropy(m.embedding.attend(m.norm(x)), b.labels.value);
  };
  const auto in_float = [](const Model& m, const Batch& b) { return loss_of(nn::cast(m, float32), b); };
  const auto weighted = [](const Model& m, const Batch& b) {
    const Array logits = m(b.ids.value);
    return std::pair(cross_entropy_sum(logits, b.labels.value, {.ignore_label = 3}), mean(logits));
  };
  const auto compare = [&](const auto& step, double tolerance) {
    const Curve expected = curve_of(model, std::nullopt, step);
    for (const char* name : {"pipe2_fsdp4", "pipe4_data2_model2"}) {
      SCOPED_TRACE(name);
      const Strategy& s = strategy(name);
      expect_same(curve_of(model, MeshRules(make_mesh(s.mesh), s.rules), step), expected, tolerance);
    }
  };
  for (const nn::PipelineSchedule schedule : {nn::PipelineSchedule::gpipe, nn::PipelineSchedule::one_f_one_b}) {
    const nn::PipelineOptions options{.num_micro_batches = 2, .schedule = schedule};
    compare([&](const Model& m, const Batch& b) { return nn::pipeline(rematted, options)(m, b); }, 1e-10);
    compare([&](const Model& m, const Batch& b) { return nn::pipeline(in_float, options)(m, b); }, 1e-5);
    compare(
        [&](const Model& m, const Batch& b) {
          auto [value, gradients] = nn::pipeline(weighted, options)(m, b);
          EXPECT_EQ(value.second.size(), 2U);
          EXPECT_TRUE(std::isfinite(value.second[1].template item<double>()));
          return std::pair(value.first, std::move(gradients));
        },
        1e-10);
  }
  compare([&](const Model& m, const Batch& b) { return nn::accumulate_gradients(loss_of, 2)(m, b); }, 1e-10);
  compare([&](const Model& m, const Batch& b) { return nn::value_and_grad(rematted)(m, b); }, 1e-10);
}

struct BlockWithStatistics {
  nn::BatchNorm norm;
  nn::Mlp mlp;

  Array operator()(const Array& x) { return x + mlp(norm(x)); }
};

struct ModelWithStatistics {
  nn::Embedding embedding;
  std::vector<BlockWithStatistics> layers;

  static ModelWithStatistics init(const Key& key) {
    const Axis embed{"embed", 8};
    ModelWithStatistics model{nn::Embedding::init(key, {"vocab", 12}, embed), {}};
    for (int i = 0; i < depth; ++i)
      model.layers.push_back({nn::BatchNorm::init(embed), nn::Mlp::init(fold_in(key, i), embed, {"hidden", 16})});
    return nn::cast(model, float64);
  }
};

Array loss_with_statistics(ModelWithStatistics& model, const Batch& batch) {
  Array x = model.embedding(batch.ids.value);
  for (BlockWithStatistics& block : model.layers) x = block(x);
  return cross_entropy(model.embedding.attend(x), batch.labels.value);
}

// Statistics carry over from one micro-batch to the next, as in accumulate_gradients on the same mesh without stages.
TEST(Stages, KeepRunningStatistics) {
  const auto statistics_of = [](const Strategy& s, const Rules& rules, const auto& step) {
    const MeshRules mesh_rules(make_mesh(s.mesh), rules);
    auto model = nn::filter_shard(ModelWithStatistics::init(Key(0)), mesh_rules);
    std::vector<double> values;
    for (int i = 0; i < 2; ++i)
      values.push_back(step(model, placed(make_batch(i), mesh_rules)).first.template item<double>());
    for (const BlockWithStatistics& block : model.layers)
      for (const Array& x : {block.norm.mean.value, block.norm.variance.value})
        for (const double value : gather(astype(x, float64)).to_host<double>()) values.push_back(value);
    return values;
  };
  for (const nn::PipelineSchedule schedule :
       {nn::PipelineSchedule::gpipe, nn::PipelineSchedule::one_f_one_b, nn::PipelineSchedule::interleaved})
    for (const char* name : {"pipe4", "pipe2_data2", "pipe2_data2_model2"}) {
      SCOPED_TRACE(name);
      const Strategy& s = strategy(name);
      const int64_t v = schedule == nn::PipelineSchedule::interleaved ? depth / s.mesh[0].size : 1;
      const nn::PipelineOptions options{.num_micro_batches = 4, .schedule = schedule, .num_virtual_stages = v};
      const auto given =
          statistics_of(s, interleaved_rules(s.rules, v), nn::pipeline(loss_with_statistics, options));
      const auto expected =
          statistics_of(s, Rules(std::vector<Rule>(s.rules.begin() + 1, s.rules.end())),  // without stages
                        nn::accumulate_gradients(loss_with_statistics, 4));
      ASSERT_EQ(given.size(), expected.size());
      EXPECT_NE(given[2], 0);
      for (size_t i = 0; i < given.size(); ++i) EXPECT_NEAR(given[i], expected[i], 1e-10) << i;
    }
}

TEST(Stages, KeepTheStateOfTheOptimizerCut) {
  const Model model = Model::init(Key(0), depth);
  const auto step = [](const std::vector<std::string>& axes) {
    return [axes](const Model& m, const Batch& b) {
      return nn::pipeline(loss_of, {.num_micro_batches = 2}, {.shard_gradients_over = axes})(m, b);
    };
  };
  const Curve expected = curve_of(model, std::nullopt, step({}));
  for (const char* name : {"pipe4_data2", "pipe2_data2_model2"}) {
    SCOPED_TRACE(name);
    const MeshRules mesh_rules(make_mesh(strategy(name).mesh), strategy(name).rules);
    const Curve curve = curve_of(model, mesh_rules, step({"data"}), {.shard_state_over = {"data"}});
    for (int i = 0; i < steps; ++i) EXPECT_NEAR(curve.losses[i], expected.losses[i], 1e-10);
  }
}

template <class Step>
std::string communication_of(const Strategy& s, const Step& step) {
  const MeshRules mesh_rules(make_mesh(s.mesh), s.rules);
  const Model model = nn::filter_shard(Model::init(Key(0), depth), mesh_rules);
  const Batch batch = placed(make_batch(0), mesh_rules);
  const CommLedger ledger;
  step(model, batch);
  return said_of(ledger);
}

TEST(Stages, CommunicateTheSameInEveryProcess) {
  const auto whole = [](const Model& m, const Batch& b) { nn::value_and_grad(loss_of)(m, b); };
  const auto micro = [](const Model& m, const Batch& b) { nn::pipeline(loss_of, {.num_micro_batches = 4})(m, b); };
  // Between stages: the activations, float64[16,3,8], and their gradients. Over "pipe": the loss, and once the
  // gradients of the embedding and the last norm, 112 numbers. Over "data": the gradients of each stage, 296 numbers.
  EXPECT_EQ(communication_of(strategy("pipe4"), whole),
            "all_reduce pipe: 1, 8\nall_reduce pipe back: 1, 896\n"
            "permute pipe: 3, 9216\npermute pipe back: 3, 9216\n");
  if (process_count() < 4) {
    EXPECT_EQ(communication_of(strategy("data2_pipe2"), whole),
              "all_reduce data: 1, 8\nall_reduce data back: 2, 9472\nall_reduce data,pipe back: 1, 896\n"
              "all_reduce pipe: 1, 8\npermute pipe: 1, 1536\npermute pipe back: 1, 1536\n");
  }
  EXPECT_EQ(communication_of(strategy("pipe4_data2"), whole),
            "all_reduce data: 1, 8\nall_reduce data back: 4, 9472\nall_reduce pipe: 1, 8\n"
            "all_reduce pipe,data back: 1, 896\npermute pipe: 3, 4608\npermute pipe back: 3, 4608\n");
  // Four micro-batches send the same bytes in four times as many messages. Reductions happen once.
  EXPECT_EQ(communication_of(strategy("pipe4_data2"), micro),
            "all_reduce data: 5, 9480\nall_reduce pipe: 1, 8\nall_reduce pipe,data: 1, 896\n"
            "permute pipe: 12, 4608\npermute pipe back: 12, 4608\n");
  EXPECT_EQ(communication_of(strategy("pipe4_data2_model2"), whole),
            "all_reduce data: 1, 8\nall_reduce data back: 4, 5120\nall_reduce model: 6, 8064\n"
            "all_reduce model back: 5, 7680\nall_reduce pipe: 1, 8\nall_reduce pipe,data back: 1, 512\n"
            "all_reduce_max model: 1, 192\npermute pipe: 3, 4608\npermute pipe back: 3, 4608\n");
}

TEST(Stages, AreForecastWithoutHardware) {
  const Strategy& s = strategy("pipe4_data2");
  const auto step = [](const Model& m, const Batch& b) { nn::pipeline(loss_of, {.num_micro_batches = 4})(m, b); };
  const std::string expected = communication_of(s, step);
  const MeshRules mesh_rules(make_mesh(s.mesh, {.abstract = true}), s.rules);
  Model model = nn::filter_shard(Model::init(Key(0), depth), mesh_rules);
  auto optimizer =
      optim::Optimizer(model, optim::chain(optim::clip_by_global_norm(0.5), optim::adam({.learning_rate = 1e-2})));
  const Batch batch = placed(make_batch(0), mesh_rules);
  const CommLedger ledger;
  const auto [loss, gradients] = nn::pipeline(loss_of, {.num_micro_batches = 4})(model, batch);
  EXPECT_EQ(said_of(ledger), expected);
  optimizer.update(model, gradients);
}

// A device has only its own stage, and the activations of the micro-batches that its schedule keeps.
TEST(Stages, AreForecastByTheFullestStage) {
  const auto forecast_of = [](const Strategy& s, std::optional<nn::PipelineSchedule> schedule) {
    const MeshRules mesh_rules(make_mesh(s.mesh, {.abstract = true}), s.rules);
    Forecast forecast;
    const Model model = nn::filter_shard(Model::init(Key(0), depth), mesh_rules);
    EXPECT_EQ(forecast.live_bytes(), nn::placement_table(model).bytes_per_device());
    const Batch batch = placed(make_batch(0), mesh_rules);
    if (schedule)
      nn::pipeline(loss_of, {.num_micro_batches = 8, .schedule = *schedule})(model, batch);
    else
      nn::value_and_grad(loss_of)(model, batch);
    return std::tuple(forecast.flops(), forecast.peak_bytes(), forecast.bubble());
  };
  const Rules whole_rules{{"embed", replicated}, {"hidden", replicated}, {"vocab", replicated}, {"batch", replicated}};
  const auto [all_flops, all_bytes, no_bubble] = forecast_of({"whole", {{"data", 1}}, whole_rules}, std::nullopt);
  const auto [flops, bytes, bubble] = forecast_of(strategy("pipe4"), nn::PipelineSchedule::gpipe);
  const auto [same_flops, fewer_bytes, same_bubble] = forecast_of(strategy("pipe4"), nn::PipelineSchedule::one_f_one_b);
  EXPECT_DOUBLE_EQ(bubble + no_bubble, 3.0 / 11);
  EXPECT_EQ(std::pair(same_flops, same_bubble), std::pair(flops, bubble));
  EXPECT_LT(flops, 0.5 * all_flops);  // the last stage: one of four layers, and the head
  EXPECT_LT(fewer_bytes, bytes);
  EXPECT_LT(bytes, 0.7 * all_bytes);
}

// Each stage has the embedding, the last norm and one layer. The bytes are per device.
TEST(Stages, HaveTheirBytesInThePlacementTable) {
  const MeshRules mesh_rules(make_mesh(strategy("pipe4_data2").mesh), pipe_data);
  const Model plain = Model::init(Key(0), depth), model = nn::filter_shard(plain, mesh_rules);
  for (const nn::PlacementTable& table : {nn::placement_table(plain, mesh_rules), nn::placement_table(model)}) {
    EXPECT_EQ(table.bytes_per_device(), (112 + 296) * 8);
    EXPECT_EQ(table.bytes_per_device("layers"), 296 * 8);
    EXPECT_EQ(table.rows()[1].stage, "pipe[0]");
    EXPECT_NE(table.to_text().find("P() on pipe[3]"), std::string::npos) << table.to_text();
    EXPECT_EQ(nn::parse_placement_table(table.to_json()).rows(), table.rows());
  }
  const nn::Explanation explained = nn::explain(model);
  EXPECT_FALSE(explained.has_errors());
  EXPECT_NE(explained.to_text().find("P() on pipe[3]"), std::string::npos) << explained.to_text();
  for (const nn::IdleRule& rule : explained.idle_rules()) EXPECT_EQ(rule.rule.find("layers"), std::string::npos);
}

TEST(Stages, AreSavedAndRestoredOnAnotherMesh) {
  const auto folder = std::filesystem::temp_directory_path() / ("tessera_stages_" + std::to_string(::getppid()));
  const auto step = [](Model& m, auto& optimizer, const MeshRules& mesh_rules, int i) {
    const auto [loss, gradients] =
        nn::pipeline(loss_of, {.num_micro_batches = 2})(m, placed(make_batch(i), mesh_rules));
    optimizer.update(m, gradients);
    return loss.template item<double>();
  };
  const Strategy &from = strategy("pipe4"), &to = strategy("pipe4_data2"), &flat = strategy("pipe2_fsdp4");
  const MeshRules mesh_rules(make_mesh(from.mesh), from.rules);
  Model model = nn::filter_shard(Model::init(Key(0), depth), mesh_rules);
  auto optimizer = optim::Optimizer(model, optim::adamw({.learning_rate = 1e-2}));
  step(model, optimizer, mesh_rules, 0);
  nn::save(folder, 1, nn::named_state("model", model, "optimizer", optimizer));
  const double expected = step(model, optimizer, mesh_rules, 1);
  const Strategy woven{"interleaved", strategy("pipe2_data2").mesh, interleaved_rules(pipe_data, 2)};
  for (const Strategy* s : {&from, &to, &flat, &woven}) {
    SCOPED_TRACE(s->name);
    const MeshRules other(make_mesh(s->mesh), s->rules);
    Model restored = nn::filter_shard(Model::init(Key(7), depth), other);
    auto state = optim::Optimizer(restored, optim::adamw({.learning_rate = 1e-2}));
    nn::restore(folder, nn::named_state("model", restored, "optimizer", state));
    EXPECT_NEAR(step(restored, state, other, 1), expected, 1e-10);
  }
  for (const Strategy* s : {&to, &flat}) {  // lazy initializers, placed as they are read
    const MeshRules other(make_mesh(s->mesh), s->rules);
    Model restored = Model::init(Key(7), depth);
    nn::restore(folder, nn::named_state("model", restored), {.mesh_rules = other, .ignore_unused = true});
    const Array loss = nn::value_and_grad(loss_of)(restored, placed(make_batch(1), other)).first;
    EXPECT_NEAR(loss.item<double>(), expected, 1e-10);
  }
  tessera::detail::Votes("test", "shared folder").all(true);
  if (process_index() == 0) std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tessera::stages_test
