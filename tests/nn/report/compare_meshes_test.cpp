// compare_meshes: bytes, collectives and predicted times of one step on several meshes.
#include "nn/report/compare_meshes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json/value.hpp>

#include "nn/layers/linear.h"
#include "nn/layers/mlp.h"
#include "nn/placement/filter_shard.h"
#include "nn/transformations/value_and_grad.h"
#include "sharding/files/json.h"
#include "sharding/operations.h"
#include "sharding/redistribution/device_put.h"
#include "tests/sharding/expect_error.h"

namespace tessera::nn::compare_meshes_test {
namespace {

using tessera::testing::expect_error;

constexpr int64_t batch = 64, embed = 32, hidden = 128;

// One value_and_grad of a two-layer network, with batch sharded over "batch" and hidden over "model".
PlacementTable step(const Mesh& mesh) {
  const MeshRules mesh_rules(mesh, {{"batch", "batch"}, {"hidden", "model"}, {"embed", replicated}});
  const auto model = filter_shard(Mlp::init(Key(0), {"embed", embed}, {"hidden", hidden}), mesh_rules);
  const Array x = device_put(zeros({batch, embed}), {"batch", "embed"}, mesh_rules);
  const auto loss = [](const Mlp& m, const Array& inputs) { return mean(square(m(inputs))); };
  const auto [value, grads] = value_and_grad(loss)(model, x);
  return placement_table(named("model", model, "gradients", grads));
}

Mesh mesh_of(int64_t n_batch, int64_t n_model) { return make_mesh({{"batch", n_batch}, {"model", n_model}}); }

constexpr int64_t parameter_bytes(int64_t n_model) {
  return (2 * embed * hidden / n_model + hidden / n_model + embed) * 4;
}

TEST(CompareMeshes, HasAColumnForEachMesh) {
  const MeshComparison all = compare_meshes(step, {mesh_of(8, 1), mesh_of(4, 2), mesh_of(1, 8)});
  ASSERT_EQ(all.steps().size(), 3u);
  for (const StepForecast& s : all.steps()) {
    EXPECT_EQ(s.error, "");
    EXPECT_TRUE(s.mesh.is_abstract());
    const int64_t bytes = parameter_bytes(s.mesh.size("model"));
    EXPECT_EQ(s.at_rest, (std::vector<std::pair<std::string, int64_t>>{{"model", bytes}, {"gradients", bytes}}));
    EXPECT_GT(s.peak_bytes, 2 * bytes + s.activation_bytes / 2);
    // Five products: two forward, two weight gradients, and the gradient of the hidden layer. The input needs no
    // gradient.
    EXPECT_EQ(s.flops, 2.0 * batch * embed * hidden / 8 * 5);
  }
  const auto& dp = all.steps()[0].traffic;
  ASSERT_EQ(dp.size(), 1u);
  EXPECT_EQ(dp[0].kind + " " + dp[0].mesh_axes, "all_reduce batch");
  EXPECT_EQ(dp[0].bytes, parameter_bytes(1) + 4) << "the gradients and the loss";
  EXPECT_EQ(dp[0].num_collectives, 2);
  // The all_reduce of the second product. The first product's input needs no gradient, so it has no all_reduce.
  const auto& tp = all.steps()[2].traffic;
  ASSERT_EQ(tp.size(), 1u);
  EXPECT_EQ(tp[0].bytes, batch * embed * 4);
}

TEST(CompareMeshes, PredictsTheSumOfComputingAndCommunicating) {
  const Hardware hardware{.flops_per_second = 1e9,
                          .link = {.bytes_per_second = 1e9, .latency = 1e-6},
                          .links = {{"model", {.bytes_per_second = 4e9, .latency = 0}}}};
  const StepForecast dp = compare_meshes(step, {mesh_of(8, 1)}, hardware).steps()[0];
  EXPECT_DOUBLE_EQ(dp.compute_seconds, dp.flops / 1e9);
  Hardware slow_memory = hardware;
  slow_memory.memory_bytes_per_second = 1e6;
  const StepForecast slow = compare_meshes(step, {mesh_of(8, 1)}, slow_memory).steps()[0];
  const double at_rest = 2 * parameter_bytes(1), hidden_layer = batch / 8 * hidden * 4;
  EXPECT_GT(slow.compute_seconds - dp.compute_seconds, 2 * (2 * at_rest + hidden_layer) / 1e6);
  EXPECT_EQ(slow.communication_seconds, dp.communication_seconds);
  const double gradients = 14 * (parameter_bytes(1) / 8.0 / 1e9 + 1e-6), loss = 14 * (4 / 8.0 / 1e9 + 1e-6);
  EXPECT_NEAR(dp.communication_seconds, gradients + loss, 1e-12);
  EXPECT_DOUBLE_EQ(dp.seconds(), dp.compute_seconds + dp.communication_seconds);
  const auto seconds = [&](const char* kind, const char* axes) {
    return collective_seconds(kind, axes, 4, 4000, hardware);
  };
  EXPECT_DOUBLE_EQ(seconds("all_reduce", "model"), 6 * 1000 / 4e9);
  EXPECT_DOUBLE_EQ(seconds("all_gather", "model"), 3 * 1000 / 4e9);
  EXPECT_DOUBLE_EQ(seconds("all_to_all", "model"), 3 * 1000 / 4e9);
  EXPECT_DOUBLE_EQ(seconds("reduce_scatter", "model"), 3 * 4000 / 4e9);
  EXPECT_DOUBLE_EQ(seconds("permute", "model"), 4000 / 4e9);
  EXPECT_DOUBLE_EQ(seconds("all_gather", "batch,model"), 3 * (1000 / 1e9 + 1e-6)) << "over the slower link";
}

// The forward pass saves the hidden layer before and after the nonlinearity, and the gathered weight.
TEST(CompareMeshes, CountsActivationsAndGatheredWeights) {
  const auto sharded = [](const Mesh& mesh) {
    const MeshRules mesh_rules =
        fsdp(mesh, "batch", {.min_size = 1, .rules = {{"batch", "batch"}, {"embed", replicated}}});
    const auto model = filter_shard(Mlp::init(Key(0), {"embed", embed}, {"hidden", hidden}), mesh_rules);
    const Array x = device_put(ones({batch, embed}), Axes{"batch", "embed"}, mesh_rules);
    const auto loss = [](const Mlp& m, const Array& inputs) { return mean(square(m(inputs))); };
    const auto [value, grads] = value_and_grad(loss)(model, x);
    return placement_table(named("model", model, "gradients", grads));
  };
  const StepForecast f = compare_meshes(sharded, {make_mesh({{"batch", 8}}, {.abstract = true})}).steps()[0];
  ASSERT_EQ(f.error, "");
  const int64_t kept = 2 * 4 * batch * hidden / 8, weight = 4 * embed * hidden, bytes = parameter_bytes(1) / 8;
  EXPECT_EQ(f.at_rest, (std::vector<std::pair<std::string, int64_t>>{{"model", bytes}, {"gradients", bytes}}));
  EXPECT_GE(f.activation_bytes, kept + 2 * weight);  // the weight as gathered and as used
  EXPECT_LE(f.activation_bytes, 2 * kept + 3 * weight);
}

TEST(CompareMeshes, RefusesNoStep) {
  expect_error(ErrorKind::invalid_argument, "[compare_meshes] an empty function given, expected a step of a Mesh.",
               [] { compare_meshes({}, {mesh_of(8, 1)}); });
}

// A step of fully sharded layers. Each gather is prefetched during the previous layer's computation.
PlacementTable sharded_layers(const Mesh& mesh) {
  const MeshRules mesh_rules(mesh, {{"rows", "data"}, {"embed", "data"}, {"hidden", replicated}});
  std::vector<Mlp> chain;
  for (uint64_t i = 0; i < 4; ++i) chain.push_back(Mlp::init(Key(i), {"embed", embed}, {"hidden", hidden}));
  const auto model = filter_shard(std::move(chain), mesh_rules);
  const auto loss = [](const std::vector<Mlp>& mlps, Array x) {
    for (const Mlp& mlp : mlps) x = mlp(x);
    return mean(square(x));
  };
  const Array x = device_put(zeros({batch, embed}), {"rows", none}, mesh_rules);
  const auto [value, grads] = value_and_grad(loss)(model, x);
  return placement_table(named("model", model, "gradients", grads));
}

TEST(CompareMeshes, OverlapIsThePartOfWhatIsHiddenThatCostsNothing) {
  Hardware hardware{.flops_per_second = 1e9, .link = {.bytes_per_second = 1e8, .latency = 1e-6}};
  const auto predicted = [&](double overlap) {
    hardware.overlap = overlap;
    return compare_meshes(sharded_layers, {make_mesh({{"data", 4}}, {.abstract = true})}, hardware).steps()[0];
  };
  const StepForecast all = predicted(1), half = predicted(0.5), nothing = predicted(0);
  ASSERT_EQ(all.error, "");
  EXPECT_GT(all.hidden_seconds, 0.1 * all.communication_seconds);
  EXPECT_DOUBLE_EQ(half.hidden_seconds, all.hidden_seconds / 2);
  EXPECT_DOUBLE_EQ(nothing.seconds(), all.seconds() + all.hidden_seconds);
}

// Each collective takes 3 seconds, and each operation 1 second.
TEST(CompareMeshes, HidesWhatIsBegunAhead) {
  const auto record_at = [](double begun, double awaited) {
    return CommRecord{.begun = {.flops = begun}, .awaited = {.flops = awaited}};
  };
  const auto predicted = [](const std::vector<CommRecord>& records, double speed = 1) {
    return detail::predicted_seconds(
        records, [](const CommRecord&) { return 3; }, speed, 12);
  };
  EXPECT_EQ(predicted({record_at(1, 1), record_at(6, 6)}), 12 + 6);
  EXPECT_EQ(predicted({record_at(1, 1), record_at(1, 6)}), 12 + 3) << "five operations take longer than it";
  EXPECT_EQ(predicted({record_at(1, 1), record_at(1, 2)}), 12 + 6 - 1) << "one operation does not";
  const std::vector<CommRecord> three{record_at(0, 4), record_at(0, 4), record_at(10, 12)};
  EXPECT_EQ(predicted(three), 15) << "one after another, and all have arrived at the end";
  EXPECT_EQ(predicted(three, /*speed=*/0), 9);
  EXPECT_EQ(predicted({}), 12);
}

// Devices of one process share communication buffers. With a single process nothing is prefetched.
TEST(CompareMeshes, CountsAProcessOfSeveralDevices) {
  const auto of = [](const MeshOptions& options) {
    return compare_meshes(sharded_layers, {make_mesh({{"data", 4}}, options)}).steps()[0];
  };
  const StepForecast each = of({.abstract = true}), two = of({.abstract = true, .num_processes = 2}),
                     one = of({.abstract = true, .num_processes = 1}), here = of({});
  EXPECT_GT(each.peak_bytes, two.peak_bytes);
  EXPECT_GT(two.peak_bytes, one.peak_bytes);
  EXPECT_EQ(here.peak_bytes, one.peak_bytes) << "a mesh of devices: as they are";
  EXPECT_EQ(one.hidden_seconds, 0);
  EXPECT_GT(two.hidden_seconds, 0);
  ASSERT_EQ(one.traffic.size(), each.traffic.size());
  EXPECT_EQ(one.traffic[0].bytes, each.traffic[0].bytes);
}

// Each machine has 4 devices along "model"; "data" connects 3 machines.
TEST(CompareMeshes, CountsASumOverMachinesInTwoStages) {
  const Hardware hardware{.link = {.bytes_per_second = 8e9, .latency = 1e-6},
                          .links = {{"data", {.bytes_per_second = 1e9, .latency = 1e-5}}},
                          .across = {"data"}};
  const Mesh mesh = make_mesh({{"data", 3}, {"model", 4}}, {.abstract = true});
  const auto seconds = [&](const char* kind, const char* axes, const Hardware& on) {
    return collective_seconds(kind, axes, mesh, 12000, on);
  };
  const auto within = [](double bytes) { return 3 * (bytes / 8e9 + 1e-6); };
  const auto between = [](double bytes) { return 2 * (bytes / 1e9 + 1e-5); };
  EXPECT_DOUBLE_EQ(seconds("all_reduce", "data,model", hardware), 2 * within(3000) + 2 * between(1000));
  EXPECT_DOUBLE_EQ(seconds("all_gather", "data,model", hardware), within(3000) + between(1000));
  EXPECT_DOUBLE_EQ(seconds("reduce_scatter", "model,data", hardware), within(36000) + between(12000));
  EXPECT_DOUBLE_EQ(seconds("all_to_all", "data,model", hardware), 11 * (1000 / 1e9 + 1e-5));
  EXPECT_DOUBLE_EQ(seconds("all_reduce", "data", hardware), 2 * between(4000));
  EXPECT_DOUBLE_EQ(seconds("all_reduce", "model", hardware), 2 * within(3000));
  Hardware one_machine = hardware;
  one_machine.across.clear();
  EXPECT_DOUBLE_EQ(seconds("all_reduce", "data,model", one_machine), 22 * (1000 / 1e9 + 1e-5));
}

// ---- prefetch

constexpr int layers = 6;
constexpr int64_t width = 64, rows = 512, devices = 8;

struct Deep {
  std::vector<Linear> layers;
};

// A fully sharded step. Each layer has one product forward and two backward, and its kernel is gathered twice. The
// first layer's kernel is gathered once, since its input needs no gradient.
PlacementTable deep_step(const Mesh& mesh, const GradientOptions& options) {
  const MeshRules mesh_rules(mesh, {{"batch", "data"}, {"in", "data"}, {"out", replicated}});
  Deep deep;
  for (int i = 0; i < layers; ++i)
    deep.layers.push_back(Linear::init(Key(i), {"in", width}, {"out", width}, {.bias = false}));
  const Deep model = filter_shard(deep, mesh_rules);
  const Array x = device_put(zeros({rows, width}), NamedSharding(mesh, P{"data"}));
  const auto loss = [](const Deep& m, const Array& inputs) {
    Array y = inputs;
    for (const Linear& layer : m.layers) y = layer(y);
    return mean(y);
  };
  const auto [value, grads] = value_and_grad(loss, options)(model, x);
  return placement_table(model);
}

// Seconds of one layer's product, gather and reduce_scatter, and of the loss's all_reduce.
struct Parts {
  double p, g, s, loss;
};

// Returns the time of a step without prefetch. A reduce_scatter runs when the next gather begins, and both are waited
// for together. The first layer's backward pass gathers nothing.
double expected_alone(const Parts& t) {
  const double forward = layers * (t.g + t.p), last = t.g + 2 * t.p;
  return forward + last + (layers - 2) * (t.s + t.g + 2 * t.p) + std::max(t.p, t.s) + t.s + t.loss;
}

// Returns the time of a step with prefetch. While a layer computes, the next layer's gather runs; in the backward pass
// the previous layer's reduce_scatter runs as well.
double expected_ahead(const Parts& t) {
  const double forward = t.g + layers * std::max(t.p, t.g), last = std::max(2 * t.p, t.g);
  const double inner = (layers - 3) * std::max(2 * t.p, t.s + t.g) + std::max(2 * t.p, t.s);
  return forward + last + inner + std::max(t.p, t.s) + t.s + t.loss;
}

TEST(CompareMeshes, HidesWhatIsBegunAheadBehindTheComputation) {
  constexpr int64_t kernel = width * width * 4;
  for (const double flops_per_second : {1e9, 2e10, 1e11, 1e13}) {
    SCOPED_TRACE(flops_per_second);
    const Hardware hardware{.flops_per_second = flops_per_second, .link = {.bytes_per_second = 1e9, .latency = 1e-6}};
    const auto forecast = [&](int prefetch) {
      const auto step = [=](const Mesh& mesh) { return deep_step(mesh, {.prefetch_groups = prefetch}); };
      return compare_meshes(step, {make_mesh({{"data", devices}}, {.abstract = true})}, hardware).steps()[0];
    };
    const auto time = [&](const char* kind, int64_t bytes) {
      return collective_seconds(kind, "data", devices, bytes, hardware);
    };
    const Parts parts{2.0 * rows / devices * width * width / flops_per_second, time("all_gather", kernel),
                      time("reduce_scatter", kernel / devices), time("all_reduce", 4)};
    const StepForecast alone = forecast(0), ahead = forecast(1);
    ASSERT_EQ(ahead.error, "");
    for (const StepForecast& f : {alone, ahead}) {
      EXPECT_NEAR(f.compute_seconds, (3 * layers - 1) * parts.p, 1e-12);
      EXPECT_NEAR(f.communication_seconds, (2 * layers - 1) * parts.g + layers * parts.s + parts.loss, 1e-12);
    }
    EXPECT_NEAR(alone.seconds(), expected_alone(parts), 1e-12);
    EXPECT_NEAR(ahead.seconds(), expected_ahead(parts), 1e-12);
    EXPECT_LT(ahead.seconds(), alone.seconds());
  }
}

TEST(CompareMeshes, PrintsTextMarkdownAndJson) {
  const MeshComparison all = compare_meshes(step, {mesh_of(8, 1), mesh_of(2, 4)});
  const std::string text = all.to_text(), markdown = all.to_markdown();
  for (const char* words : {"batch=8, model=1", "batch=2, model=4", "model, bytes", "activations, bytes", "peak, bytes",
                            "all_reduce over batch", "step, ms", "33,408"})
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
  EXPECT_EQ(markdown.find("| on one device | batch=8, model=1 | batch=2, model=4 |\n|---|---:|---:|\n"), 0u)
      << markdown;
  const boost::json::value json = parse_json(all.to_json(), "test", "json");
  const auto& second = json.at("meshes").at(1);
  EXPECT_EQ(second.at("mesh").at("model").as_int64(), 4);
  EXPECT_EQ(second.at("devices").as_int64(), 8);
  EXPECT_TRUE(second.at("error").is_null());
  EXPECT_EQ(second.at("bytes").at("model").as_int64(), parameter_bytes(4));
  EXPECT_EQ(second.at("bytes").at("peak").as_int64(), all.steps()[1].peak_bytes);
  EXPECT_EQ(second.at("collectives").as_array().size(), all.steps()[1].traffic.size());
}

TEST(CompareMeshes, ReportsMeshesOnWhichTheStepThrows) {
  const MeshComparison all = compare_meshes(step, {mesh_of(3, 1), mesh_of(2, 1)});
  EXPECT_NE(all.steps()[0].error.find("64"), std::string::npos) << all.steps()[0].error;
  EXPECT_NE(all.to_text().find("batch=3, model=1: ["), std::string::npos) << all.to_text();
  EXPECT_EQ(all.steps()[1].error, "");
  expect_error(ErrorKind::invalid_argument, "flops_per_second 0 given",
               [] { compare_meshes(step, {mesh_of(2, 1)}, {.flops_per_second = 0}); });
  expect_error(ErrorKind::invalid_argument, "bytes_per_second -1 given",
               [] { compare_meshes(step, {mesh_of(2, 1)}, {.links = {{"batch", {.bytes_per_second = -1}}}}); });
}

}  // namespace
}  // namespace tessera::nn::compare_meshes_test
