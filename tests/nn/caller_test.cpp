// The user's line of a communication, through layers, losses, remat, value_and_grad and micro-batches.
#include "sharding/base/caller.h"

#include <set>

#include "nn/layers/attention.h"
#include "nn/layers/embedding.h"
#include "nn/layers/mlp.h"
#include "nn/layers/norm.h"
#include "nn/placement/filter_shard.h"
#include "nn/transformations/accumulate_gradients.h"
#include "nn/transformations/remat.h"
#include "nn/transformations/value_and_grad.h"
#include "sharding/accounting/ledger.h"
#include "sharding/operations.h"
#include "sharding/redistribution/device_put.h"
#include "tests/nn/support.h"

namespace tessera::nn::caller_test {
namespace {

using namespace testing;

const Rules fsdp{{"batch", "data"}, {"embed", "data"}, {"hidden", "model"}, {"heads", "model"}, {"vocab", "model"}};

MeshRules mesh_rules() { return MeshRules(make_mesh({{"data", 4}, {"model", 2}}), fsdp); }

std::string file_of(const std::source_location& where) {
  const std::string file = where.file_name();
  return file.substr(file.rfind('/') + 1);
}

// The lines of this file that the records of one pass are attributed to; 0 for a line of another file.
std::set<uint32_t> lines_of(const CommLedger& ledger, bool backward) {
  std::set<uint32_t> lines;
  for (const CommRecord& r : ledger.records())
    if (r.backward == backward) lines.insert(file_of(r.where) == "caller_test.cpp" ? r.where.line() : 0);
  return lines;
}

// A user's model: all of its computations are on these lines.
struct Network {
  Embedding tokens;
  LayerNorm norm;
  MultiheadAttention attention;
  Mlp mlp;
  GatedMlp gated;

  static constexpr uint32_t first = __LINE__;
  Array operator()(const Array& ids) const {
    const auto stay = [](const Array& y) { return with_sharding_constraint(y, {"batch", none, none}); };
    const Array x = stay(tokens(ids));
    const Array y = stay(x + attention(norm(x)));
    const Array z = stay(y + mlp(y));
    const Array w = stay(z + gated(z));
    return tokens.attend(w);
  }
  static constexpr uint32_t last = __LINE__;

  static Network init() {
    const auto [k1, k2, k3, k4] = split<4>(Key(0));
    const Axis embed{"embed", 16}, hidden{"hidden", 16};
    return {.tokens = Embedding::init(k1, {"vocab", 8}, embed),
            .norm = LayerNorm::init(embed),
            .attention = MultiheadAttention::init(k2, embed, {"heads", 16}, 4),
            .mlp = Mlp::init(k3, embed, hidden),
            .gated = GatedMlp::init(k4, embed, hidden)};
  }
};

struct Batch {
  Array ids, labels;
};

Batch batch() {
  std::vector<int32_t> values(8 * 4);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int32_t>(i * 5 % 8);
  const Array ids = place_batch(array<int32_t>(values, {8, 4}), mesh_rules(), P{"data"});
  return {ids, ids};
}

constexpr uint32_t loss_line = __LINE__ + 1;
Array loss_of(const Network& model, const Batch& b) { return cross_entropy(model(b.ids), b.labels); }

bool is_users(uint32_t line) { return (line > Network::first && line < Network::last) || line == loss_line; }

void expect_users_lines(const CommLedger& ledger, bool backward, uint32_t call, size_t least) {
  const std::set<uint32_t> lines = lines_of(ledger, backward);
  EXPECT_GE(lines.size(), least);
  for (const uint32_t line : lines) EXPECT_TRUE(line == call || is_users(line)) << line << (backward ? " <" : "");
}

TEST(Caller, OfAModelsLayersAreTheModelsLines) {
  const Network model = filter_shard(Network::init(), mesh_rules());
  const Batch b = batch();
  CommLedger ledger;
  loss_of(model, b);
  expect_users_lines(ledger, false, 0xffff, 5);
}

TEST(Caller, OfGradientsTheForwardLinesAndTheCallOfValueAndGrad) {
  const Network model = filter_shard(Network::init(), mesh_rules());
  const Batch b = batch();
  CommLedger ledger;
  const uint32_t call = __LINE__ + 1;
  value_and_grad(loss_of)(model, b);
  expect_users_lines(ledger, false, call, 5);
  expect_users_lines(ledger, true, call, 5);
  int reductions = 0;
  for (const CommRecord& r : ledger.records())
    if (r.operation == "gradients") {
      EXPECT_EQ(r.where.line(), call);
      EXPECT_NE(r.path, "");
      ++reductions;
    }
  EXPECT_GE(reductions, 1);
}

TEST(Caller, OfRematTheCallInBothRuns) {
  const MeshRules place = mesh_rules();
  const Mlp mlp = filter_shard(Mlp::init(Key(0), {"embed", 16}, {"hidden", 16}), place);
  const Array x = place_batch(ones({8, 16}), place, P{"data"});
  CommLedger ledger;
  uint32_t line = 0, call = 0;
  const auto loss = [&](const Mlp& m, const Array& in) {
    line = __LINE__ + 1;
    const Array y = remat(m)(in);
    return mean(y * y);
  };
  call = __LINE__ + 1;
  value_and_grad(loss)(mlp, x);
  for (const CommRecord& r : ledger.records()) {
    const bool at_the_end = r.operation == "gradients" || r.operation == "loss";
    EXPECT_EQ(file_of(r.where), "caller_test.cpp") << r.operation;
    EXPECT_TRUE(r.where.line() == (at_the_end ? call : line) || r.where.line() == line + 1)
        << r.operation << ' ' << r.where.line();
  }
}

TEST(Caller, OfMicroBatchesTheCall) {
  const Network model = filter_shard(Network::init(), mesh_rules());
  const Batch b = batch();
  CommLedger ledger;
  const uint32_t call = __LINE__ + 1;
  accumulate_gradients(loss_of, 2)(model, b);
  expect_users_lines(ledger, false, call, 5);
  expect_users_lines(ledger, true, call, 4);
}

TEST(Caller, AnArrayThatMovesIsPutDownToFilterShard) {
  const Network model = filter_shard(Network::init(), mesh_rules());
  CommLedger ledger;
  const uint32_t call = __LINE__ + 1;
  const Network whole = filter_shard(model, NamedSharding(mesh_rules().mesh(), P{}));
  EXPECT_GE(ledger.count("all_gather"), 1);
  EXPECT_EQ(lines_of(ledger, false), std::set<uint32_t>{call});
}

TEST(Caller, WeightsAreNamedByTheirPaths) {
  const Network model = filter_shard(Network::init(), mesh_rules());
  CommLedger ledger;
  loss_of(model, batch());
  std::set<std::string> paths;
  for (const CommRecord& r : ledger.records()) paths.insert(r.path);
  for (const char* path : {"attention.q.kernel", "mlp.up.kernel", "gated.gate.kernel", "norm.scale"})
    EXPECT_TRUE(paths.count(path)) << path;
}

}  // namespace
}  // namespace tessera::nn::caller_test
