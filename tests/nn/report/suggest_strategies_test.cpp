// suggest_strategies: its suggestions fit, are the fastest, and run; measure_hardware and its file.
#include "nn/report/suggest_strategies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json/value.hpp>
#include <fstream>
#include <set>

#include "nn/layers/linear.h"
#include "nn/layers/mlp.h"
#include "nn/placement/filter_shard.h"
#include "nn/report/measure_hardware.h"
#include "nn/report/strategy_candidates.h"
#include "nn/transformations/pipeline.h"
#include "nn/transformations/value_and_grad.h"
#include "sharding/base/fail.h"
#include "sharding/base/table.h"
#include "sharding/files/json.h"
#include "sharding/operations.h"
#include "sharding/placement/mesh_impl.h"
#include "sharding/redistribution/device_put.h"
#include "tests/data/scratch_folder.h"
#include "tests/sharding/expect_error.h"

namespace tessera::nn::suggest_strategies_test {
namespace {

using tessera::testing::expect_error;

constexpr int64_t devices = 8;
constexpr int64_t plenty = int64_t{1} << 40;
const Hardware slow_link{.flops_per_second = 1e12, .link = {.bytes_per_second = 1e8, .latency = 1e-6}};

// One value_and_grad of a two-layer network.
struct MlpStep {
  int64_t batch = 64, embed = 64, hidden = 256;

  PlacementTable operator()(const MeshRules& mesh_rules, const GradientOptions& gradients) const {
    const auto model = filter_shard(Mlp::init(Key(0), {"embed", embed}, {"hidden", hidden}), mesh_rules);
    const Array x = device_put(zeros({batch, embed}), {"batch", "embed"}, mesh_rules);
    const auto loss = [](const Mlp& m, const Array& inputs) { return mean(square(m(inputs))); };
    const auto [value, grads] = value_and_grad(loss, gradients)(model, x);
    return placement_table(named("model", model, "gradients", grads));
  }
};
const GradientStep many_rows = MlpStep{.batch = 8192, .embed = 16, .hidden = 32};
const GradientStep large_weights = MlpStep{.batch = 8, .embed = 512, .hidden = 1024};

std::string rule_of(const SuggestedStrategy& s, const std::string& name) {
  for (const Rule& rule : s.rules)
    if (rule.logical == name) return rule.to_string();
  return "no rule";
}

TEST(SuggestStrategies, FollowsRowsOrWeights) {
  const SuggestedStrategy by_rows = suggest_strategies(many_rows, devices, slow_link, plenty).best();
  EXPECT_EQ(by_rows.mesh, (std::vector<MeshAxis>{{"data", devices}}));
  EXPECT_EQ(rule_of(by_rows, "batch"), "\"batch\" -> \"data\"");
  const SuggestedStrategy by_weights = suggest_strategies(large_weights, devices, slow_link, plenty).best();
  EXPECT_EQ(by_weights.mesh, (std::vector<MeshAxis>{{"model", devices}}));
  EXPECT_EQ(by_weights.name, "tensor parallel");
  EXPECT_EQ(rule_of(by_weights, "hidden"), "\"hidden\" -> \"model\"");
  EXPECT_EQ(rule_of(by_weights, "embed"), "\"embed\" -> replicated");
}

const SuggestStrategiesOptions exactly{.memory_headroom = 0};

// Tries the exact memory of each strategy, and one byte less.
TEST(SuggestStrategies, NeverGivesOneThatDoesNotFit) {
  const GradientStep step = MlpStep{};
  const StrategySuggestions all =
      suggest_strategies(step, devices, slow_link, plenty, {.max_strategies = 50, .min_relative_gap = 0});
  EXPECT_GT(all.strategies().size(), 5u);
  int64_t least = plenty;
  for (const SuggestedStrategy& one : all.strategies())
    for (const int64_t memory : {one.forecast.peak_bytes, one.forecast.peak_bytes - 1}) {
      double before = 0;
      const StrategySuggestions found = suggest_strategies(step, devices, slow_link, memory, exactly);
      for (const SuggestedStrategy& s : found.strategies()) {
        EXPECT_LE(s.forecast.peak_bytes, memory);
        EXPECT_GE(s.forecast.seconds(), before) << "the fastest first";
        before = s.forecast.seconds();
        least = std::min(least, s.forecast.peak_bytes);
      }
      EXPECT_TRUE(before > 0 || memory < one.forecast.peak_bytes);
    }
  const StrategySuggestions none = suggest_strategies(step, devices, slow_link, least - 1, exactly);
  EXPECT_TRUE(none.strategies().empty());
  expect_error(ErrorKind::invalid_argument, tessera::detail::with_commas(least), [&] { none.best(); });
  expect_error(ErrorKind::invalid_argument, "no strategy fits in 1 bytes on each of 8 devices: the smallest found, ",
               [&] { suggest_strategies(step, devices, slow_link, 1).best(); });
}

// 10 % of the memory stay free, because predicted peaks are only accurate to 10 %.
TEST(SuggestStrategies, KeepsAPartOfTheMemoryFree) {
  const GradientStep step = MlpStep{};
  const StrategySuggestions none = suggest_strategies(step, devices, slow_link, 1);
  const int64_t least = none.too_large()[0].forecast.peak_bytes, enough = (10 * least + 8) / 9;
  EXPECT_TRUE(suggest_strategies(step, devices, slow_link, enough - 2).strategies().empty());
  EXPECT_FALSE(suggest_strategies(step, devices, slow_link, enough + 2).strategies().empty());
  expect_error(ErrorKind::invalid_argument,
               {"takes " + tessera::detail::with_commas(least), ", and 10 % are kept free. Give"},
               [&] { none.best(); });
}

TEST(SuggestStrategies, ListsStrategiesWithDifferentPredictions) {
  const auto found = [](double min_relative_gap) {
    return suggest_strategies(MlpStep{}, devices, slow_link, plenty,
                              {.max_strategies = 50, .min_relative_gap = min_relative_gap});
  };
  const StrategySuggestions all = found(0), apart = found(0.1);
  EXPECT_LT(apart.strategies().size(), all.strategies().size());
  EXPECT_GE(apart.strategies().size(), 2u);
  EXPECT_EQ(apart.best().name, all.best().name);
  for (size_t i = 1; i < apart.strategies().size(); ++i)
    EXPECT_GE(apart.strategies()[i].forecast.seconds(), 1.1 * apart.strategies()[i - 1].forecast.seconds());
  expect_error(ErrorKind::invalid_argument, "min_relative_gap = -1 given, expected a finite number from 0 on",
               [&] { found(-1); });
  expect_error(ErrorKind::invalid_argument, "min_relative_gap = inf given, expected a finite number from 0 on",
               [&] { found(std::numeric_limits<double>::infinity()); });
}

TEST(SuggestStrategies, RunsOnDevicesAsItWasForecast) {
  const StrategySuggestions found = suggest_strategies(MlpStep{}, devices, slow_link, plenty);
  EXPECT_GE(found.strategies().size(), 3u);
  for (const SuggestedStrategy& s : found.strategies()) {
    const PlacementTable table = MlpStep{}(s.mesh_rules(), s.gradients);
    for (const auto& [name, bytes] : s.forecast.at_rest) EXPECT_EQ(table.bytes_per_device(name), bytes) << s.name;
  }
}

TEST(SuggestStrategies, IsTheSameEachTimeWithinItsSteps) {
  for (const int64_t most : {3, 8, 64}) {
    int64_t runs = 0;
    const auto step = [&](const MeshRules& mesh_rules, const GradientOptions& gradients) {
      ++runs;
      return MlpStep{}(mesh_rules, gradients);
    };
    const StrategySuggestions found = suggest_strategies(step, devices, slow_link, plenty, {.max_steps = most});
    EXPECT_LE(runs, most);
    EXPECT_EQ(found.search().num_steps, runs);
    EXPECT_EQ(found.search().is_complete, most == 64);
    EXPECT_GE(found.strategies().size(), 1u);
    EXPECT_EQ(found.to_json(), suggest_strategies(step, devices, slow_link, plenty, {.max_steps = most}).to_json());
  }
}

TEST(SuggestStrategies, OffersGradientOptionsToThoseWhoTakeThem) {
  const auto names = [](const StrategySuggestions& found) {
    std::string all;
    for (const SuggestedStrategy& s : found.strategies()) {
      all += s.name + "; ";
      EXPECT_EQ(s.name.find("ZeRO-1") == 0, !s.gradients.shard_gradients_over.empty());
    }
    return all;
  };
  const SuggestStrategiesOptions all{.max_strategies = 50, .min_relative_gap = 0};
  const std::string with = names(suggest_strategies(MlpStep{}, devices, slow_link, plenty, all));
  for (const char* family : {"data parallel", "ZeRO-1", "tensor parallel", "ZeRO-1 x tensor parallel"})
    EXPECT_NE(with.find(family), std::string::npos) << family << " of " << with;
  const auto step = [](const MeshRules& mesh_rules) { return MlpStep{}(mesh_rules, {}); };
  EXPECT_EQ(names(suggest_strategies(step, devices, slow_link, plenty, all)).find("ZeRO-1"), std::string::npos);
}

// ---- pipelines

struct Blocks {
  std::vector<Mlp> layers;

  static Blocks init(int64_t depth, int64_t embed, int64_t hidden) {
    Blocks model;
    for (int64_t i = 0; i < depth; ++i)
      model.layers.push_back(Mlp::init(Key(static_cast<uint32_t>(i)), {"embed", embed}, {"hidden", hidden}));
    return model;
  }
  Array operator()(Array x) const {
    for (const Mlp& layer : layers) x = layer(x);
    return x;
  }
};

struct BlocksStep {
  int64_t depth = 8, batch = 256, embed = 64, hidden = 256;

  PlacementTable operator()(const MeshRules& mesh_rules, const GradientOptions& gradients,
                            const PipelineOptions& options) const {
    const auto model = filter_shard(Blocks::init(depth, embed, hidden), mesh_rules);
    const Array x = device_put(zeros({batch, embed}), {"batch", "embed"}, mesh_rules);
    const auto loss = [](const Blocks& m, const Array& inputs) { return mean(square(m(inputs))); };
    const auto [value, grads] = pipeline(loss, options, gradients)(model, x);
    return placement_table(named("model", model, "gradients", grads));
  }
};

bool is_pipeline(const SuggestedStrategy& s) { return s.mesh[0].name == "pipe"; }

const SuggestStrategiesOptions everything{.max_strategies = 100};

TEST(SuggestStrategies, ProposesPipelinesWhereThereAreBlocks) {
  const PipelineStep step = BlocksStep{};
  const StrategySuggestions found = suggest_strategies(step, devices, slow_link, plenty, everything);
  std::set<int64_t> stages;
  for (const SuggestedStrategy& s : found.strategies()) {
    EXPECT_EQ(is_pipeline(s), s.pipeline.num_micro_batches > 1) << s.name;
    EXPECT_EQ(is_pipeline(s), s.name.starts_with("pipeline")) << s.name;
    EXPECT_EQ(is_pipeline(s), s.forecast.bubble_seconds > 0) << s.name;
    if (!is_pipeline(s)) continue;
    stages.insert(s.mesh[0].size);
    EXPECT_EQ(rule_of(s, "layers"), "\"layers\" -> \"pipe\"");
    const auto n = static_cast<double>(s.mesh[0].size), m = static_cast<double>(s.pipeline.num_micro_batches);
    EXPECT_NEAR(s.forecast.bubble_seconds / (s.forecast.compute_seconds + s.forecast.bubble_seconds),
                (n - 1) / (m + n - 1), 1e-9);
  }
  EXPECT_TRUE(stages.contains(2) && stages.contains(8)) << found;
  EXPECT_TRUE(found.failed().empty()) << found;
  EXPECT_EQ(found.to_json(), suggest_strategies(step, devices, slow_link, plenty, everything).to_json());
  for (const char* words : {" micro-batches, one_f_one_b.", "bubble, ms", "layers=pipe"})
    EXPECT_NE(found.to_text().find(words), std::string::npos) << words << found;
}

// Seven blocks need seven stages, which do not divide eight devices. A step without micro-batches gets no pipeline.
TEST(SuggestStrategies, ProposesNoPipelineThatDoesNotDivide) {
  const auto none = [](const StrategySuggestions& found) {
    EXPECT_FALSE(found.strategies().empty());
    for (const SuggestedStrategy& s : found.strategies()) EXPECT_FALSE(is_pipeline(s)) << s.name;
    EXPECT_EQ(found.to_text().find("bubble"), std::string::npos);
  };
  none(suggest_strategies(PipelineStep(BlocksStep{.depth = 7}), devices, slow_link, plenty, everything));
  none(suggest_strategies(PipelineStep(BlocksStep{.batch = 1}), devices, slow_link, plenty, everything));
  const auto without = [](const MeshRules& mesh_rules) { return BlocksStep{}(mesh_rules, {}, {}); };
  none(suggest_strategies(without, devices, slow_link, plenty, everything));
}

// Compares the bytes of a placed step with the forecast. With one byte less, no suggestion exceeds the memory.
TEST(SuggestStrategies, ProposesPipelinesThatFitAndRun) {
  const BlocksStep step{.depth = 4, .batch = 64};
  const StrategySuggestions all = suggest_strategies(PipelineStep(step), 4, slow_link, plenty, everything);
  int64_t pipelines = 0, least = plenty;
  for (const SuggestedStrategy& s : all.strategies()) {
    least = std::min(least, s.forecast.peak_bytes);
    if (!is_pipeline(s)) continue;
    pipelines += 1;
    const PlacementTable table = step(s.mesh_rules(), s.gradients, s.pipeline);
    for (const auto& [name, bytes] : s.forecast.at_rest) EXPECT_EQ(table.bytes_per_device(name), bytes) << s.name;
    const int64_t memory = s.forecast.peak_bytes - 1;
    for (const SuggestedStrategy& other :
         suggest_strategies(PipelineStep(step), 4, slow_link, memory, exactly).strategies())
      EXPECT_LE(other.forecast.peak_bytes, memory);
  }
  EXPECT_GE(pipelines, 2);
  EXPECT_TRUE(suggest_strategies(PipelineStep(step), 4, slow_link, least - 1, exactly).strategies().empty());
}

// The link is too slow for gradients and gathers, and a device too small for the whole model.
TEST(SuggestStrategies, PrefersStagesOverASlowLink) {
  const BlocksStep step{.depth = 8, .batch = 64, .embed = 256, .hidden = 1024};
  const Hardware slowest{.flops_per_second = 1e12, .link = {.bytes_per_second = 1e6, .latency = 1e-6}};
  const int64_t whole = 2 * step.depth * (2 * step.embed * step.hidden + step.embed + step.hidden) * 4;
  const SuggestedStrategy best = suggest_strategies(PipelineStep(step), devices, slowest, whole / 3).best();
  EXPECT_TRUE(is_pipeline(best)) << best.name;
}

TEST(SuggestStrategies, KeepsErrorsOfTheStepAndContinues) {
  const auto step = [](const MeshRules& mesh_rules) {
    if (mesh_rules.mesh().has_axis("model") && mesh_rules.mesh().size("model") == 4)
      fail(ErrorKind::invalid_argument, "step", "four is too many.");
    return MlpStep{}(mesh_rules, {});
  };
  const StrategySuggestions found = suggest_strategies(step, devices, slow_link, plenty);
  ASSERT_FALSE(found.failed().empty());
  for (const SuggestedStrategy& s : found.failed()) EXPECT_EQ(s.forecast.error, "[step] four is too many.");
  for (const SuggestedStrategy& s : found.strategies()) EXPECT_EQ(s.forecast.error, "");
  EXPECT_NE(found.to_text().find("on data=2, model=4: [step] four is too many."), std::string::npos);
}

TEST(SuggestStrategies, KeepsToTheMostAlongAnAxis) {
  const StrategySuggestions found =
      suggest_strategies(large_weights, devices, slow_link, plenty,
                         {.max_strategies = 50, .min_relative_gap = 0, .max_along = {{"model", 2}}});
  EXPECT_FALSE(found.strategies().empty());
  for (const SuggestedStrategy& s : found.strategies())
    for (const MeshAxis& axis : s.mesh) EXPECT_LE(axis.size, axis.name == "model" ? 2 : devices) << s.name;
}

// No logical axis is in all matrices, so FSDP shards each weight along its longest dimension.
TEST(SuggestStrategies, CutsWeightsWithoutACommonName) {
  struct Chain {
    Linear a, b, c;
  };
  const auto step = [](const MeshRules& mesh_rules) {
    const auto model = filter_shard(
        Chain{Linear::init(Key(0), {"in", 512}, {"one", 256}), Linear::init(Key(1), {"one", 256}, {"two", 512}),
              Linear::init(Key(2), {"two", 512}, {"out", 512})},
        mesh_rules);
    const Array x = device_put(zeros({64, 512}), {"batch", none}, mesh_rules);
    const auto loss = [](const Chain& m, const Array& y) { return mean(m.c(m.b(m.a(y)))); };
    const auto [value, grads] = value_and_grad(loss)(model, x);
    return placement_table(named("model", model, "gradients", grads));
  };
  const StrategySuggestions found = suggest_strategies(
      step, devices, slow_link, plenty, {.max_strategies = 50, .min_relative_gap = 0, .max_along = {{"model", 1}}});
  const auto sharded = std::find_if(found.strategies().begin(), found.strategies().end(),
                                    [](const SuggestedStrategy& s) { return s.name == "fully sharded"; });
  ASSERT_NE(sharded, found.strategies().end());
  EXPECT_LT(sharded->forecast.at_rest[0].second, (3 * 512 * 512 + 512 + 1280) * 4 / 7);
  EXPECT_NE(found.to_text().find("** of at least 1024 elements=data"), std::string::npos) << found.to_text();
}

TEST(SuggestStrategies, FindsTheBlocks) {
  std::vector<PlacementRow> rows;
  const auto add = [&](const std::string& path, int64_t bytes) { rows.push_back({.path = path, .bytes = bytes}); };
  for (int i = 0; i < 6; ++i) add("model.decoder.layers." + std::to_string(i) + ".experts.1.kernel", 10);
  for (int i = 0; i < 4; ++i) add("model.encoder.layers." + std::to_string(i) + ".kernel", 10);
  add("model.heads.0.kernel", 1000);
  add("model.tables.0.kernel", 40), add("model.tables.1.kernel", 40);
  add("optimizer.state.1.mu.heads.0.kernel", 1000);  // state.0 has no arrays
  add("optimizer.parts.0.trace.heads.0.kernel", 1000), add("optimizer.parts.1.mu.heads.0.kernel", 1000);
  const detail::AxisRoles roles = detail::roles_of({}, rows);
  EXPECT_EQ(roles.blocks, "layers");
  EXPECT_EQ(roles.depth, 2);
  const detail::AxisRoles named = detail::roles_of({{"filter_shard", "x", {"layers"}, {8}}}, rows);
  EXPECT_EQ(named.blocks, "tables") << "a rule for layers says how that dim lies";
}

TEST(SuggestStrategies, DescribesNames) {
  const detail::AxisRoles roles =
      detail::roles_of({{"load_pretrained", "embed.tokens", {"vocab", "embed"}, {512, 64}},
                        {"load_pretrained", "up.kernel", {"embed", "mlp"}, {64, 96}},
                        {"filter_shard", "norm.scale", {"norm"}, {64}},
                        {"from_process_local", "inputs", {"batch", "seq"}, {8, 16}},
                        {"with_sharding_constraint", "", {"batch", "rows", none}, {8, 16, 64}}});
  EXPECT_EQ(roles.batch, "batch");
  EXPECT_EQ(roles.stream, "embed");
  EXPECT_EQ(roles.inner, (std::vector<std::string>{"vocab", "mlp"}));
  EXPECT_EQ(roles.sequence, (std::vector<std::string>{"seq", "rows"}));
  EXPECT_EQ(roles.constrained, std::vector<std::string>{"rows"});
  EXPECT_TRUE(roles.stream_is_everywhere);
  EXPECT_TRUE(roles.divides(32, "mlp") && !roles.divides(64, "mlp"));
}

TEST(SuggestStrategies, GivesReasonsInTextMarkdownAndJson) {
  const StrategySuggestions found = suggest_strategies(MlpStep{}, devices, slow_link, plenty);
  const SuggestedStrategy &first = found.strategies()[0], &second = found.strategies()[1];
  EXPECT_NE(first.why.find("less than " + second.name + " on "), std::string::npos) << first.why;
  const std::string text = found.to_text(), markdown = found.to_markdown();
  for (const std::string& words : {first.why, first.name, std::string("8 devices of "), std::string("step, ms")}) {
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
    EXPECT_NE(markdown.find(words), std::string::npos) << words << "\n" << markdown;
  }
  EXPECT_NE(markdown.find("|---:|---|---|"), std::string::npos);
  const boost::json::value json = parse_json(found.to_json(), "test", "json");
  const auto& mesh_rules = json.at("strategies").at(0);
  EXPECT_EQ(json.at("devices").as_int64(), devices);
  EXPECT_EQ(std::string(mesh_rules.at("why").as_string()), first.why);
  EXPECT_EQ(mesh_rules.at("forecast").at("bytes").at("peak").as_int64(), first.forecast.peak_bytes);
  EXPECT_TRUE(mesh_rules.at("rules").as_object().contains("hidden"));
}

TEST(SuggestStrategies, RefusesWhatItCannotSearch) {
  const auto expect = [](const char* words, const std::function<void()>& call) {
    expect_error(ErrorKind::invalid_argument, words, call);
  };
  const GradientStep step = MlpStep{};
  expect("devices = 0 given", [&] { suggest_strategies(step, 0, {}, plenty); });
  expect("devices = 1000001 given, expected 1000000 at most", [&] { suggest_strategies(step, 1000001, {}, plenty); });
  expect("an empty function given", [&] { suggest_strategies(StrategyStep(), 8, {}, plenty); });
  expect("memory = 0 given", [&] { suggest_strategies(step, 1, {}, 0); });
  expect("max_steps = 2 given", [&] { suggest_strategies(step, 1, {}, 1, {.max_steps = 2}); });
  expect("memory_headroom = 1 given, expected a fraction from 0",
         [&] { suggest_strategies(step, 1, {}, 1, {.memory_headroom = 1}); });
  expect("num_processes = -1 given", [&] { suggest_strategies(step, 1, {}, 1, {.num_processes = -1}); });
  expect("num_processes = 3 given, expected a number that divides the 4 devices, or 0.",
         [&] { suggest_strategies(step, 4, {}, 1, {.num_processes = 3}); });
  expect("max_along names \"batch\"", [&] { suggest_strategies(step, 1, {}, 1, {.max_along = {{"batch", 2}}}); });
  expect("[suggest_strategies] flops_per_second 0", [&] { suggest_strategies(step, 1, {.flops_per_second = 0}, 1); });
  expect("places nothing by the names",
         [&] { suggest_strategies([](const MeshRules&) { return PlacementTable({}); }, 1, {}, 1); });
}

// ---- measure_hardware

TEST(MeasureHardware, MeasuresEachAxisAndIsKept) {
  Hardware measured =
      measure_hardware(make_mesh({{"data", 2}, {"model", 2}}), {.side = 64, .bytes = 65536, .num_rounds = 3});
  EXPECT_GT(measured.flops_per_second, 1e6);
  ASSERT_EQ(measured.links.size(), 2u);
  for (const auto& [axis, link] : measured.links) {
    EXPECT_GT(link.bytes_per_second, 1e5) << axis;
    EXPECT_GE(link.latency, 0) << axis;
    EXPECT_LE(measured.link.bytes_per_second, link.bytes_per_second);
  }
  // Between devices that share a GPU, latency is mainly call time. The measured call time may therefore be about 0.
  EXPECT_GT(measured.call_seconds, make_mesh({{"data", 1}}).impl()->device.is_cpu() ? 1e-8 : -1e-8);
  EXPECT_LT(measured.call_seconds, 0.1);
  EXPECT_EQ(measured.overlap, 0) << "in one process";
  const data::ScratchFolder folder;
  const std::string file = folder.path("hardware.json");
  save_hardware(file, measured);
  EXPECT_EQ(load_hardware(file), measured);
  EXPECT_TRUE(measured.across.empty()) << "on one machine";
  measured.across = {"data"};
  save_hardware(file, measured);
  EXPECT_EQ(load_hardware(file), measured);
}

TEST(MeasureHardware, RefusesMeshesAndFiles) {
  expect_error(ErrorKind::invalid_argument, "an abstract mesh given",
               [] { measure_hardware(make_mesh({{"data", 2}}, {.abstract = true})); });
  expect_error(ErrorKind::invalid_argument, "num_rounds = 0 given",
               [] { measure_hardware(make_mesh({{"data", 2}}), {.num_rounds = 0}); });
  expect_error(ErrorKind::invalid_argument, "dtype: int32 given",
               [] { measure_hardware(make_mesh({{"data", 2}}), {.dtype = int32}); });
  data::ScratchFolder folder;
  expect_error(ErrorKind::invalid_file, "[load_hardware]", [&] { load_hardware(folder.path("none.json")); });
  const std::string missing = folder.write("missing.json", R"({"flops_per_second": 1e12})");
  expect_error(ErrorKind::invalid_file, "has no \"link\".", [&] { load_hardware(missing); });
  const std::string still =
      folder.write("still.json", R"({"flops_per_second": 1e12, "link": {"bytes_per_second": 0, "latency": 0}})");
  expect_error(ErrorKind::invalid_argument, "[load_hardware] bytes_per_second 0 given", [&] { load_hardware(still); });
  expect_error(ErrorKind::invalid_argument, "[save_hardware] overlap 1.5 given, expected a fraction from 0 to 1.",
               [&] { save_hardware(folder.path("more.json"), {.overlap = 1.5}); });
}

}  // namespace
}  // namespace tessera::nn::suggest_strategies_test
