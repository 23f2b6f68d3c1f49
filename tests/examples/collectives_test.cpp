// The collectives of one training step of the transformer for each strategy: kinds, counts and bytes.
#include <gtest/gtest.h>

#include <boost/json/value.hpp>
#include <map>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "data/batches/to_global.h"
#include "examples/transformer.h"
#include "nn/placement/filter_shard.h"
#include "nn/transformations/value_and_grad.h"
#include "optim/optimizer.h"
#include "sharding/accounting/ledger.h"
#include "sharding/files/json.h"
#include "tests/examples/rows.h"

namespace tessera::collectives_test {
namespace {

constexpr int64_t batch = 16, seq = 32, embed = 64, layers = 2, vocab = 256, mlp = 256;
constexpr int64_t parameters = 134912;  // parameters of the replicated model

// How a step of one strategy is computed.
struct Mode {
  bool private_replicas = false;
  bool reshard_after_forward = true;
  bool zero1 = false;  // gradients stay partial sums; the optimizer's state is sharded over "data"
  bool remat = false;
  GatherGroups gather_groups = GatherGroups::by_parameter;
};

// {kind, mesh axes, backward} -> {count, bytes}
using Summary = std::map<std::tuple<std::string, std::string, bool>, std::pair<int64_t, int64_t>>;

Summary summary(const std::vector<CommRecord>& records) {
  Summary rows;
  for (const CommRecord& r : records) {
    auto& [count, bytes] = rows[{r.kind, r.mesh_axes, r.backward}];
    count += 1;
    bytes += r.bytes;
  }
  return rows;
}

struct Strategy {
  const char* name;
  std::vector<MeshAxis> mesh;
  Rules rules;
  Summary expected;             // each weight is gathered once
  Summary second_gathers = {};  // the additional gathers of reshard_after_forward
};

void PrintTo(const Strategy& s, std::ostream* out) { *out << s.name; }

// Returns the collectives of the second step, which includes value_and_grad and the update.
std::vector<CommRecord> records_of_step(const Strategy& s, const Mode& mode) {
  const MeshRules mesh_rules(make_mesh(s.mesh, {.private_replicas = mode.private_replicas}),
                             examples::with_all_names(s.rules));
  auto model = nn::filter_shard(examples::Gpt::init(Key(0), {}), mesh_rules);
  model.remat = mode.remat;
  auto optimizer = optim::Optimizer(
      model, optim::chain(optim::clip_by_global_norm(1.0), optim::adamw({.learning_rate = 1e-3})),
      {.shard_state_over = mode.zero1 ? std::vector<std::string>{"data"} : std::vector<std::string>{}});
  const auto loss_fn = [](const examples::Gpt& m, const data::TokenBatch& b) {
    return examples::next_token_loss(m, b);
  };
  const auto step = [&] {
    CommLedger ledger;
    const auto [loss, grads] = nn::value_and_grad(loss_fn, {.reshard_after_forward = mode.reshard_after_forward,
                                                            .gather_groups = mode.gather_groups,
                                                            .reduce = !mode.zero1})(
        model, data::from_process_local(examples::counted_rows(batch, seq), mesh_rules));
    optimizer.update(model, grads);
    return ledger.records();
  };
  step();
  return step();
}

// The bytes per device of one activation (batch, seq, embed) if the batch is sharded over n devices.
constexpr int64_t activation(int64_t n) { return batch / n * seq * embed * 4; }
// The bytes of one float per position: the sum or the largest logit of a softmax.
constexpr int64_t position(int64_t n) { return batch / n * seq * 4; }

// Megatron's collectives over `model` if the batch is sharded over n devices. Forward: one for the embedding, two per
// layer and two sums of the cross-entropy. Backward: two per layer and one for the head. The norm adds one scalar.
Summary tensor_parallel(int64_t n, int64_t norm_on_model) {
  return {
      {{"all_reduce_max", "model", false}, {1, position(n)}},
      {{"all_reduce", "model", false},
       {1 + 2 * layers + 1 + norm_on_model, (1 + 2 * layers) * activation(n) + 2 * position(n) + 4 * norm_on_model}},
      {{"all_reduce", "model", true}, {2 * layers + 1, (2 * layers + 1) * activation(n)}}};
}

Summary with(Summary rows, const Summary& more) {
  for (const auto& [key, row] : more) rows[key] = row;
  return rows;
}

// Regroups the collectives of fully sharded weights by block. Bytes stay the same; there is one gather and one
// reduce_scatter per block and pass, and one for each of the embeddings and the head.
Summary in_blocks(Summary rows) {
  for (auto& [key, row] : rows) {
    const auto& [kind, axes, backward] = key;
    if (row.first > 1 && (kind == "all_gather" || kind == "reduce_scatter"))
      row.first = layers + (kind == "all_gather" && backward ? 1 : 3);
  }
  return rows;
}

// The bytes of one device's parameters if heads, mlp and vocab are sharded over four devices.
constexpr int64_t params_tp4 = 143744;
// The bytes of all weights with a dimension "embed", and of the others, which are replicated.
constexpr int64_t gathered = 533504, rest = 6144;
// The bytes of the matrices that the backward pass reads: six per layer and the head. It reads no embedding and no
// bias.
constexpr int64_t read_backward = (layers * (4 * embed * embed + 2 * embed * mlp) + embed * vocab) * 4;

const std::vector<Strategy> strategies = {
    {"one", {{"data", 1}}, {}, {}},
    {"dp8",
     {{"data", 8}},
     {{"batch", "data"}},
     {{{"all_reduce", "data", true}, {1, parameters * 4}}, {{"all_reduce", "data", false}, {1, 4}}}},
    {"tp4", {{"model", 4}}, {{"heads", "model"}, {"mlp", "model"}, {"vocab", "model"}}, tensor_parallel(1, 1)},
    {"fsdp8",
     {{"data", 8}},
     {{"batch", "data"}, {"embed", "data"}},
     {{{"all_gather", "data", false}, {3 + 8 * layers, gathered}},
      {{"reduce_scatter", "data", true}, {3 + 8 * layers, gathered / 8}},
      {{"all_reduce", "data", true}, {1, rest}},
      {{"all_reduce", "data", false}, {2, 8}}},
     {{{"all_gather", "data", true}, {6 * layers + 1, read_backward}}}},
    {"dp2_tp4",
     {{"data", 2}, {"model", 4}},
     {{"batch", "data"}, {"heads", "model"}, {"mlp", "model"}, {"vocab", "model"}},
     with(tensor_parallel(2, 1),
          {{{"all_reduce", "data", true}, {1, params_tp4}}, {{"all_reduce", "data", false}, {1, 4}}})},
    {"fsdp2_tp4",
     {{"data", 2}, {"model", 4}},
     {{"batch", "data"}, {"embed", "data"}, {"heads", "model"}, {"mlp", "model"}, {"vocab", "model"}},
     with(tensor_parallel(2, 0), {{{"all_gather", "data", false}, {3 + 8 * layers, params_tp4 - 3456}},
                                  {{"reduce_scatter", "data", true}, {3 + 8 * layers, (params_tp4 - 3456) / 2}},
                                  {{"all_reduce", "data", true}, {1, 3456}},
                                  {{"all_reduce", "data", false}, {1, 4}},
                                  {{"all_reduce", "data,model", false}, {1, 4}}}),
     {{{"all_gather", "data", true}, {6 * layers + 1, read_backward / 4}}}},
};

const Strategy& strategy(const std::string& name) {
  for (const Strategy& s : strategies)
    if (s.name == name) return s;
  throw std::out_of_range(name);
}

class Collectives : public ::testing::TestWithParam<Strategy> {};

TEST_P(Collectives, OfOneStepAreExactlyThese) {
  const Strategy& s = GetParam();
  for (const bool private_replicas : {false, true}) {
    EXPECT_EQ(summary(records_of_step(s, {.private_replicas = private_replicas, .reshard_after_forward = false})),
              s.expected);
    const Summary borrowed = with(s.expected, s.second_gathers);
    EXPECT_EQ(summary(records_of_step(s, {.private_replicas = private_replicas})), borrowed);
    EXPECT_EQ(
        summary(records_of_step(s, {.private_replicas = private_replicas, .gather_groups = GatherGroups::by_block})),
        in_blocks(borrowed));
  }
}

TEST_P(Collectives, MoveNoMoreBytesThanJax) {
  const Strategy& s = GetParam();
  const boost::json::value file = parse_json_file(TESSERA_REFERENCE_DIR "/transformer_gpt.json");
  const auto* jax = file.at("strategies").as_object().if_contains(s.name);
  int64_t theirs = 0, ours = 0;
  if (jax)
    for (const auto& [kind, row] : jax->at("collectives").as_object()) theirs += row.at("bytes").to_number<int64_t>();
  for (const CommRecord& r : records_of_step(s, {.reshard_after_forward = false})) ours += r.bytes;
  // JAX's program includes the loss and the norm, too, but it combines the norm's scalars into larger collectives.
  EXPECT_LE(ours, theirs);
}

// ZeRO-1: each gradient is reduce-scattered once, and each new parameter all-gathered once.
TEST(CollectivesOfZero1, AreOneReduceScatterAndOneGather) {
  for (const bool private_replicas : {false, true}) {
    const Mode zero1{.private_replicas = private_replicas, .zero1 = true};
    EXPECT_EQ(summary(records_of_step(strategy("dp8"), zero1)),
              (Summary{{{"reduce_scatter", "data", false}, {1, parameters * 4 / 8}},
                       {{"all_gather", "data", false}, {1, parameters * 4}},
                       {{"all_reduce", "data", false}, {2, 8}}}));
    EXPECT_EQ(summary(records_of_step(strategy("dp2_tp4"), zero1)),
              with(tensor_parallel(2, 0), {{{"reduce_scatter", "data", false}, {1, params_tp4 / 2}},
                                           {{"all_gather", "data", false}, {1, params_tp4}},
                                           {{"all_reduce", "data", false}, {1, 4}},
                                           {{"all_reduce", "data,model", false}, {1, 4}}}));
  }
}

// Recomputation gathers a block's weights again: once for the recomputed forward pass, and once for its backward pass.
// It repeats the all-reduces of tensor parallelism that the backward pass needs. The gradients join the same single
// bucket.
TEST(CollectivesOfRemat, AreTheBlocksAgain) {
  const Strategy& fsdp = strategy("fsdp8");
  const Summary plain = summary(records_of_step(fsdp, {})), again = summary(records_of_step(fsdp, {.remat = true}));
  const std::tuple<std::string, std::string, bool> gather{"all_gather", "data", false};
  EXPECT_EQ(again.at(gather).first, plain.at(gather).first + 8 * layers);
  for (const auto& [key, row] : plain) {
    if (key == gather) continue;
    EXPECT_EQ(again.at(key), row) << std::get<0>(key) << " " << std::get<1>(key);
  }
  EXPECT_EQ(summary(records_of_step(strategy("dp8"), {.remat = true})), strategy("dp8").expected);
}

INSTANTIATE_TEST_SUITE_P(Strategies, Collectives, ::testing::ValuesIn(strategies),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tessera::collectives_test
