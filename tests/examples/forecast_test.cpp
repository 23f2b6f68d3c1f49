// A forecast of the transformer's training step: ledger and peak per device equal the real ones.
#include "sharding/accounting/forecast.h"

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "data/batches/to_global.h"
#include "data/batches/token_batch.h"
#include "examples/transformer.h"
#include "nn/placement/filter_shard.h"
#include "nn/placement/table.h"
#include "nn/transformations/accumulate_gradients.h"
#include "nn/transformations/value_and_grad.h"
#include "optim/optimizer.h"
#include "tests/sharding/allocations.h"

namespace tessera::examples::forecast_test {
namespace {

using tessera::testing::Allocations;

constexpr int64_t batch = 16, seq = 32;

struct Strategy {
  const char* name;
  std::vector<MeshAxis> mesh;
  Rules rules;
  bool zero1 = false, remat = false, reshard_after_forward = true;
  int64_t num_micro_batches = 1;
};

const Rules tensor = {{"heads", "model"}, {"kv_heads", "model"}, {"mlp", "model"}, {"vocab", "model"}};

Rules with(Rules rules, const Rules& more) {
  rules.insert(rules.end(), more.begin(), more.end());
  return rules;
}

const std::vector<Strategy> strategies = {
    {"one", {{"data", 1}}, {}},
    {"dp", {{"data", 4}}, {{"batch", "data"}}},
    {"fsdp", {{"data", 4}}, {{"batch", "data"}, {"embed", "data"}}},
    {"fsdp_that_keeps_gathers",
     {{"data", 4}},
     {{"batch", "data"}, {"embed", "data"}},
     /*zero1=*/false,
     /*remat=*/false,
     /*reshard_after_forward=*/false},
    {"tp", {{"model", 2}}, tensor},
    {"sequence_parallel", {{"model", 2}}, with(tensor, {{"stream_seq", "model"}})},
    {"two_axes", {{"data", 2}, {"model", 2}}, with(tensor, {{"batch", "data"}})},
    {"fsdp_and_tp", {{"data", 2}, {"model", 2}}, with(tensor, {{"batch", "data"}, {"embed", "data"}})},
    {"zero1", {{"data", 4}}, {{"batch", "data"}}, /*zero1=*/true},
    {"remat", {{"data", 4}}, {{"batch", "data"}, {"embed", "data"}}, /*zero1=*/false, /*remat=*/true},
    {"micro_batches",
     {{"data", 4}},
     {{"batch", "data"}, {"embed", "data"}},
     /*zero1=*/false,
     /*remat=*/false,
     /*reshard_after_forward=*/true,
     /*num_micro_batches=*/2},
};

void PrintTo(const Strategy& s, std::ostream* out) { *out << s.name; }

data::TokenBatch tokens() { return empty_rows(batch, seq); }

template <class Model>
void train_step(Model model, const Strategy& s, const Mesh& mesh) {
  const MeshRules mesh_rules(mesh, with_all_names(s.rules));
  model = nn::filter_shard(model, mesh_rules);
  model.remat = s.remat;
  auto optimizer =
      optim::Optimizer(model, optim::chain(optim::clip_by_global_norm(1.0), optim::adamw({.learning_rate = 1e-3})),
                       {.shard_state_over = s.zero1 ? std::vector<std::string>{"data"} : std::vector<std::string>{}});
  const data::TokenBatch ids = data::from_process_local(tokens(), mesh_rules);
  const GradientOptions options{.reshard_after_forward = s.reshard_after_forward, .reduce = !s.zero1};
  const auto loss_fn = next_token_loss<Model, data::TokenBatch>;
  const auto [loss, grads] = s.num_micro_batches > 1
                                 ? nn::accumulate_gradients(loss_fn, s.num_micro_batches, options)(model, ids)
                                 : nn::value_and_grad(loss_fn, options)(model, ids);
  optimizer.update(model, grads);
}

// Both example models: one has biases, the other rotary positions and grouped heads.
template <class F>
void with_both_models(F f) {
  SCOPED_TRACE("gpt");
  f(Gpt::init(Key(0), {}));
  SCOPED_TRACE("llama");
  f(nn::CausalLM::init(Key(0), {.num_key_value_heads = 2, .rms_norm_eps = 1e-5, .tie_word_embeddings = true}));
}

class ForecastOfTransformer : public ::testing::TestWithParam<Strategy> {};

std::string text_of(const CommRecord& r) {
  return r.kind + " over " + r.mesh_axes + ", " + std::to_string(r.num_devices) + " devices, " +
         std::to_string(r.bytes) + " bytes: " + r.operation + " of " + r.path + " " + r.operand + " -> " + r.result +
         " (" + r.reason + ") " + (r.backward ? "backward " : "forward ") + r.where.file_name() + ":" +
         std::to_string(r.where.line());
}

std::vector<std::string> texts_of(const CommLedger& ledger) {
  std::vector<std::string> texts;
  for (const CommRecord& r : ledger.records()) texts.push_back(text_of(r));
  return texts;
}

TEST_P(ForecastOfTransformer, HasTheLedgerOfTheRealStepRecordByRecord) {
  const Strategy& s = GetParam();
  with_both_models([&](const auto& model) {
    const auto records = [&](const MeshOptions& options) {
      const CommLedger ledger;
      train_step(model, s, make_mesh(s.mesh, options));
      return texts_of(ledger);
    };
    const std::vector<std::string> expected = records({});
    EXPECT_EQ(records({.abstract = true, .num_processes = 1}), expected);
    EXPECT_EQ(expected.empty(), std::string(s.name) == "one");
  });
}

// With private replicas on n devices, a forecast for one device is 1/n of the memory of the process, up to the scratch
// space of kernels. (tests/benchmarks/strategies compares it between processes.)
TEST_P(ForecastOfTransformer, HasThePeakOfOneDevice) {
  const Strategy& s = GetParam();
  with_both_models([&](const auto& model) {
    const Forecast forecast;
    train_step(model, s, make_mesh(s.mesh, {.abstract = true, .num_processes = 1}));
    const Mesh mesh = make_mesh(s.mesh, {.private_replicas = true});
    const Allocations memory;
    train_step(model, s, mesh);
    const double real = static_cast<double>(memory.peak()) / static_cast<double>(mesh.size());
    const double ratio = static_cast<double>(forecast.peak_bytes()) / real;
    RecordProperty("ratio", std::to_string(ratio));
    EXPECT_NEAR(ratio, 1, mesh.size() == 1 ? 0.02 : 0.1);
  });
}

INSTANTIATE_TEST_SUITE_P(Strategies, ForecastOfTransformer, ::testing::ValuesIn(strategies),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tessera::examples::forecast_test
