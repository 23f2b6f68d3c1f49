// The interleaved pipeline schedule: its order, its idle time, training, placement, communication and errors.
#include <algorithm>
#include <map>
#include <tuple>

#include "nn/placement/explain.h"
#include "nn/placement/table.h"
#include "nn/transformations/accumulate_gradients.h"
#include "nn/transformations/pipeline.h"
#include "nn/transformations/remat.h"
#include "nn/transformations/value_and_grad.h"
#include "sharding/accounting/communication_guard.h"
#include "sharding/accounting/forecast.h"
#include "sharding/redistribution/stages.h"
#include "tests/processes/stages.h"
#include "tests/processes/ways.h"
#include "tests/sharding/expect_error.h"

namespace tessera::stages_interleaved_test {
namespace {

using namespace tessera::testing;

nn::PipelineOptions options_of(int64_t n, int64_t v) {
  return {.num_micro_batches = n, .schedule = nn::PipelineSchedule::interleaved, .num_virtual_stages = v};
}

// The order of Figure 4 of Narayanan et al. (2021), whose micro-batches begin at 1. A dash marks virtual stage 2.
TEST(Interleaved, FollowsTheOrderOfMegatron) {
  const auto passes = [](int64_t n, int64_t stage, int64_t stages) {
    std::string text;
    for (const auto& [is_backward, i, virtual_stage] : nn::detail::passes_of(options_of(n, 2), stage, stages))
      text += (is_backward ? " B" : " F") + std::to_string(i + 1) + (virtual_stage > 0 ? "'" : "");
    return text;
  };
  EXPECT_EQ(passes(4, 0, 2), " F1 F2 F1' F2' F3 B1' F4 B2' F3' B1 F4' B2 B3' B4' B3 B4");
  EXPECT_EQ(passes(4, 1, 2), " F1 F2 F1' B1' F2' B2' F3 B1 F4 B2 F3' B3' F4' B4' B3 B4");
  EXPECT_EQ(passes(8, 0, 4),
            " F1 F2 F3 F4 F1' F2' F3' F4' F5 F6 F7 B1' F8 B2' F5' B3' F6' B4' F7' B1 F8' B2"
            " B3 B4 B5' B6' B7' B8' B5 B6 B7 B8");
  EXPECT_EQ(passes(8, 2, 4),
            " F1 F2 F3 F4 F1' F2' F3' B1' F4' B2' F5 B3' F6 B4' F7 B1 F8 B2 F5' B3 F6' B4 F7' B5' F8' B6'"
            " B7' B8' B5 B6 B7 B8");
  EXPECT_EQ(passes(8, 3, 4),
            " F1 F2 F3 F4 F1' B1' F2' B2' F3' B3' F4' B4' F5 B1 F6 B2 F7 B3 F8 B4 F5' B5' F6' B6' F7' B7' F8' B8'"
            " B5 B6 B7 B8");
}

// The messages of an abstract mesh, which follows the first stage. Its passes end before its next virtual stage.
TEST(Interleaved, RunsItsPassesInThisOrder) {
  const MeshRules mesh_rules(make_mesh(strategy("pipe2").mesh, {.abstract = true}), interleaved_rules(pipe, 2));
  const Model model = nn::filter_shard(Model::init(Key(0), 4), mesh_rules);
  std::string expected, messages;
  for (const auto& [is_backward, i, virtual_stage] : nn::detail::passes_of(options_of(4, 2), 0, 2))
    expected += is_backward ? (virtual_stage == 1 ? " B0 B1" : " B0") : virtual_stage == 1 ? " F0 F1" : " F1";
  const CommLedger ledger;
  nn::pipeline(loss_of, options_of(4, 2))(model, placed(make_batch(0), mesh_rules));
  for (const CommRecord& r : ledger.records())
    if (r.kind == "permute") messages += (r.backward ? " B" : " F") + std::to_string(r.stage);
  EXPECT_EQ(messages, expected);
}

// Returns the idle fraction of the schedule's stages, if forward passes take 1 and backward passes 2 units of time.
double idle_of(const nn::PipelineOptions& options, int64_t stages) {
  const int64_t last = stages * options.num_virtual_stages - 1;
  std::map<std::tuple<bool, int64_t, int64_t>, int64_t> ends{{{false, -1, 0}, 0}};
  std::vector<int64_t> now(stages), next(stages);
  for (bool advances = true; std::exchange(advances, false);)
    for (int64_t s = 0; s < stages; ++s) {
      const std::vector passes = nn::detail::passes_of(options, s, stages);
      for (; next[s] < std::ssize(passes); ++next[s], advances = true) {
        const auto [back, i, turn] = passes[next[s]];
        const int64_t at = turn * stages + s;
        const auto input = back ? std::tuple(at < last, i, std::min(at + 1, last))
                                : std::tuple(false, at > 0 ? i : -1, std::max<int64_t>(at - 1, 0));
        if (!ends.contains(input)) break;
        now[s] = ends[{back, i, at}] = std::max(now[s], ends[input]) + (back ? 2 : 1);
      }
    }
  EXPECT_EQ(std::ssize(ends), 1 + 2 * options.num_micro_batches * (last + 1)) << "a stage waits forever";
  const auto busy = static_cast<double>(3 * options.num_micro_batches * options.num_virtual_stages);
  return 1 - busy / static_cast<double>(*std::max_element(now.begin(), now.end()));
}

TEST(Interleaved, IdlesLess) {
  for (const int64_t stages : {2, 4, 8})
    for (const int64_t n : {stages, 2 * stages, 4 * stages}) {
      const double before = idle_of({.num_micro_batches = n, .schedule = nn::PipelineSchedule::one_f_one_b}, stages);
      for (const int64_t v : {2, 3, 4}) {
        const double idle = idle_of(options_of(n, v), stages), ideal = static_cast<double>(stages - 1);
        EXPECT_NEAR(idle, ideal / (static_cast<double>(v * n) + ideal), 1e-12);
        EXPECT_LT(idle, before);
      }
    }
}

std::vector<double> numbers_of(const Model& gradients) {
  std::vector<double> all;
  for (const nn::Leaf& leaf : nn::leaves(gradients))
    for (const double x : gather(*leaf.value).to_host<double>()) all.push_back(x);
  return all;
}

// The losses of one device, and the gradients of the other schedules bit for bit.
TEST(Interleaved, TrainsAsOneDeviceDoes) {
  for (const Strategy& s : strategies)
    for (const int64_t v : {2, 3}) {
      if (devices_of(s) % process_count()) continue;
      SCOPED_TRACE(std::string(s.name) + " " + std::to_string(v));
      const auto stages = std::ranges::find(s.mesh, "pipe", &MeshAxis::name)->size;
      const int64_t n = std::string(s.name) == "pipe2_fsdp4" ? 4 : 8;
      const Model model = Model::init(Key(0), static_cast<int>(stages * v));
      const Curve expected = curve_of(model, std::nullopt, nn::value_and_grad(loss_of));
      const MeshRules mesh_rules(make_mesh(s.mesh), interleaved_rules(s.rules, v));
      expect_same(curve_of(model, mesh_rules, nn::pipeline(loss_of, options_of(n, v))), expected);
      const Model there = nn::filter_shard(model, mesh_rules);
      const Batch batch = placed(make_batch(0), mesh_rules);
      EXPECT_EQ(numbers_of(nn::pipeline(loss_of, options_of(n, v))(there, batch).second),
                numbers_of(nn::pipeline(loss_of, {.num_micro_batches = n})(there, batch).second));
    }
}

TEST(Interleaved, PlacesAndCommunicatesByVirtualStage) {
  const MeshRules mesh_rules(make_mesh(strategy("pipe4").mesh), interleaved_rules(pipe, 2));
  const Model plain = Model::init(Key(0), 8), model = nn::filter_shard(plain, mesh_rules);
  for (const nn::PlacementTable& table : {nn::placement_table(plain, mesh_rules), nn::placement_table(model)}) {
    EXPECT_EQ(table.bytes_per_device(), (112 + 2 * 296) * 8);
    for (const nn::PlacementRow& row : table.rows())
      if (row.path.starts_with("layers.")) {
        EXPECT_EQ(row.stage, fmt::format("pipe[{}]", (row.path[7] - '0') % 4));
      }
  }
  EXPECT_FALSE(nn::explain(model).has_errors());
  const CommLedger ledger;
  nn::pipeline(loss_of, options_of(4, 2))(model, placed(make_batch(0), mesh_rules));
  // Seven times the activations of four micro-batches, float64[4,3,8].
  EXPECT_EQ(said_of(ledger), "all_reduce pipe: 2, 904\npermute pipe: 28, 21504\npermute pipe back: 28, 21504\n");
}

// The bubble, and the activations of the first stage: 1 + (S - 1) / (S * v) times those of one_f_one_b.
TEST(Interleaved, IsForecastWithoutHardware) {
  const auto forecast_of = [](const Rules& rules, const nn::PipelineOptions& options) {
    const MeshRules mesh_rules(make_mesh(strategy("pipe4").mesh, {.abstract = true}), rules);
    Forecast forecast;
    const Model model = nn::filter_shard(Model::init(Key(0), 8), mesh_rules);
    nn::pipeline(loss_of, options)(model, placed(make_batch(0), mesh_rules));
    return std::tuple(forecast.flops(), forecast.peak_bytes(), forecast.bubble());
  };
  const auto [flops, bytes, bubble] = forecast_of(interleaved_rules(pipe, 2), options_of(16, 2));
  const auto [same_flops, fewer_bytes, larger_bubble] =
      forecast_of(pipe, {.num_micro_batches = 16, .schedule = nn::PipelineSchedule::one_f_one_b});
  EXPECT_EQ(flops, same_flops);
  EXPECT_DOUBLE_EQ(bubble, 3.0 / (2 * 16 + 3));
  EXPECT_DOUBLE_EQ(larger_bubble, 3.0 / (16 + 3));
  EXPECT_GT(bytes, fewer_bytes);
  EXPECT_LT(bytes, std::get<1>(forecast_of(pipe, {.num_micro_batches = 16})));
}

TEST(Interleaved, ThrowsForOtherPlacements) {
  const Mesh mesh = make_mesh(strategy("pipe4").mesh);
  const Model plain = Model::init(Key(0), 8);
  expect_error(ErrorKind::not_divisible,
               "[filter_shard] layers: 8 elements are not divisible by mesh axis \"pipe\" = 4 times 3 virtual stages. "
               "Change the rule or the mesh.",
               [&] { (void)nn::filter_shard(plain, MeshRules(mesh, interleaved_rules(pipe, 3))); });
  expect_error(ErrorKind::invalid_argument, "\"layers\" -> \"pipe\", 0 virtual stages given, expected 1 or more",
               [&] { MeshRules(mesh, interleaved_rules(pipe, 0)); });
  expect_error(ErrorKind::unknown_axis, "names the mesh axis \"pipe\"", [&] {
    MeshRules(make_mesh({{"data", 4}}), interleaved_rules(pipe, 2));
  });
  expect_error(ErrorKind::invalid_argument, "[pipeline] num_virtual_stages: 0 given, expected 1 or more.",
               [] { nn::pipeline(loss_of, options_of(4, 0)); });
  expect_error(ErrorKind::invalid_argument, "[pipeline] num_virtual_stages: 2 given, but gpipe has no virtual stages",
               [] { nn::pipeline(loss_of, {.num_micro_batches = 4, .num_virtual_stages = 2}); });
  const auto expect_refused = [&](ErrorKind kind, const std::string& message, int64_t placed_in, int64_t n, int64_t v) {
    const MeshRules mesh_rules(mesh, interleaved_rules(pipe, placed_in));
    const Model model = nn::filter_shard(plain, mesh_rules);
    expect_error(kind, message,
                 [&] { nn::pipeline(loss_of, options_of(n, v))(model, placed(make_batch(0), mesh_rules)); });
  };
  expect_refused(ErrorKind::not_divisible,
                 "[pipeline] 2 micro-batches are not divisible by the 4 stages of mesh axis \"pipe\"", 2, 2, 2);
  expect_refused(ErrorKind::invalid_argument,
                 "[pipeline] num_virtual_stages: 2 given, but the layers of each stage are together.", 1, 4, 2);
  expect_refused(ErrorKind::invalid_argument,
                 "an activation would go back from pipe[3] to pipe[0], expected num_virtual_stages = 1 visits", 2, 4,
                 1);
  if (process_count() == 1) return;
  int calls = 0;
  const auto failing = [&](const Model& m, const Batch& b) {
    Array loss = loss_of(m, b);
    return ++calls < 4 ? loss : throw std::runtime_error("the fourth micro-batch");
  };
  const MeshRules in_order(mesh, interleaved_rules(pipe, 1));
  EXPECT_THROW(nn::pipeline(failing, {.num_micro_batches = 4})(nn::filter_shard(plain, in_order),
                                                               placed(make_batch(0), in_order)),
               std::runtime_error);
  // Processes may not have received all messages of the step that failed.
  expect_refused(ErrorKind::inconsistent, "[pipeline] an exception ended an earlier step", 2, 4, 2);
  tessera::detail::has_stray_messages() = false;
  const MeshRules mesh_rules(mesh, interleaved_rules(pipe, 2));
  const Batch batch = placed(make_batch(0), mesh_rules);
  const auto nested = [&](const Model& m) { return nn::pipeline(loss_of, options_of(4, 2))(m, batch).first; };
  expect_error(ErrorKind::no_gradient, "[pipeline] is called inside value_and_grad",
               [&] { nn::value_and_grad(nested)(nn::filter_shard(plain, mesh_rules)); });
}

// An abstract mesh has the threads of the first stage's process. A failed pass ends the suspended ones.
TEST(Interleaved, RunsAfterAFailedStep) {
  const MeshRules mesh_rules(make_mesh(strategy("pipe4").mesh, {.abstract = true}), interleaved_rules(pipe, 2));
  const Model model = nn::filter_shard(Model::init(Key(0), 8), mesh_rules);
  const Batch batch = placed(make_batch(0), mesh_rules);
  const auto rematted = [](const Model& m, const Batch& b) {
    const auto all = [](const std::vector<Block>& blocks, const Array& x) {
      Array y = x;
      for (const Block& block : blocks) y = block(y);
      return y;
    };
    return cross_entropy(m.embedding.attend(m.norm(nn::remat(all)(m.layers, m.embedding(b.ids.value)))),
                         b.labels.value);
  };
  expect_error(ErrorKind::invalid_argument, "again in the backward pass of an interleaved pipeline",
               [&] { nn::pipeline(rematted, options_of(8, 2))(model, batch); });
  {
    const CommunicationGuard guard = forbid_implicit_communication();
    expect_error(ErrorKind::forbidden, "permute", [&] { nn::pipeline(loss_of, options_of(8, 2))(model, batch); });
  }
  const CommLedger ledger;
  nn::pipeline(loss_of, options_of(8, 2))(model, batch);
  EXPECT_EQ(said_of(ledger), "all_reduce pipe: 2, 904\npermute pipe: 56, 21504\npermute pipe back: 56, 21504\n");
}

}  // namespace
}  // namespace tessera::stages_interleaved_test
